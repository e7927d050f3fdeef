// Short-lived tokens for users of this machine, who are known by their uid.
#ifndef KEVAL_SERVER_PEER_TOKENS_H_
#define KEVAL_SERVER_PEER_TOKENS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace keval::server {

// Principals of this kind begin so; no other kind's may.
inline constexpr absl::string_view kUidPrefix = "uid:";

// A token is "keval-uid.UID.EXPIRY.MAC": uid and expiry (seconds since 1970) in clear, under a key that this object
// drew and nobody else knows. So none is stored, and none outlives the process. Thread-safe.
class PeerTokens {
 public:
  static constexpr absl::Duration kLifetime = absl::Minutes(10);

  explicit PeerTokens(std::function<absl::Time()> now = absl::Now);

  std::string Issue(uid_t uid) const;

  // "uid:N"; nullopt for a token that is none of this object's or has expired.
  std::optional<std::string> PrincipalOf(absl::string_view token) const;

 private:
  std::string Mac(absl::string_view text) const;

  const std::function<absl::Time()> now_;
  const std::string key_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_PEER_TOKENS_H_
