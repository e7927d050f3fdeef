// Gradient sessions by name: whose they are, and how long they stay.
#ifndef KEVAL_SERVER_SESSION_STORE_H_
#define KEVAL_SERVER_SESSION_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/gradient_session.h"

namespace keval::server {

struct StoredSession {
  std::string name;  // "sessions/" and 48 hexadecimal digits.
  std::shared_ptr<GradientSession> session;
  absl::Duration lease;
  absl::Time expires;
};

// Every session belongs to a principal; to any other caller it does not exist. It ends by Delete or with its lease, and
// is no more than its running calls hold from then on. Thread-safe.
class SessionStore {
 public:
  struct Options {
    std::int64_t max_sessions_per_principal = 1000;
    absl::Duration default_lease = absl::Hours(1);
    absl::Duration max_lease = absl::Hours(24);
    std::function<absl::Time()> now = [] { return absl::Now(); };
  };
  explicit SessionStore(Options options);

  // What a name of this or another process of the server's looks like.
  static bool IsName(absl::string_view text);

  // RESOURCE_EXHAUSTED (field "sessions") where the principal may have no further one. To be asked before anything is
  // allocated.
  absl::Status CheckRoom(absl::string_view principal);
  // `lease` zero: the default; more than the maximum is cut to it. RESOURCE_EXHAUSTED as CheckRoom.
  absl::StatusOr<StoredSession> Insert(absl::string_view principal, std::shared_ptr<GradientSession> session,
                                       absl::Duration lease);

  // NOT_FOUND (field "session"), in the same words, for a name that is unknown, expired or another principal's; in
  // words of its own for a name that another process of the server's has given.
  absl::StatusOr<StoredSession> Stat(absl::string_view principal, absl::string_view name);
  // The same, and its lease starts again.
  absl::StatusOr<std::shared_ptr<GradientSession>> Use(absl::string_view principal, absl::string_view name);
  // Likewise, with a lease of another length from now on; zero: as long as it was.
  absl::StatusOr<StoredSession> Touch(absl::string_view principal, absl::string_view name, absl::Duration lease);
  // Where a call that has used it for a while ends; nothing where the session has ended.
  void Renew(const GradientSession& session);
  absl::Status Delete(absl::string_view principal, absl::string_view name);
  // The principal's sessions with a name after `after`, ascending, at most `limit`.
  std::vector<StoredSession> List(absl::string_view principal, absl::string_view after, int limit);

  // Ends those whose lease has run out. Every other call does this too; a server calls it from time to time.
  void DropExpired();

  std::int64_t size() const;
  const Options& options() const { return options_; }

 private:
  struct Entry {
    std::string principal;
    StoredSession stored;
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  absl::StatusOr<Entries::iterator> FindEntry(absl::string_view principal, absl::string_view name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RoomForOne(absl::string_view principal) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration LeaseOf(absl::Duration asked) const;

  const Options options_;
  const std::string process_;  // 16 hexadecimal digits that every name of this process begins with.
  mutable Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_SESSION_STORE_H_
