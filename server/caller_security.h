// Who may call, from kevald's options: certificates, tokens and users of this machine.
#ifndef KEVAL_SERVER_CALLER_SECURITY_H_
#define KEVAL_SERVER_CALLER_SECURITY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/grpc/tls_identity.h"
#include "server/options.h"
#include "server/peer_token_socket.h"
#include "server/peer_tokens.h"
#include "server/principal.h"
#include "server/tls_files.h"
#include "server/token_table.h"

namespace keval::server {

// Where the options name no way to tell who calls, everybody is "anonymous". Otherwise a caller is, in this order: who
// its bearer token stands for (one that stands for nobody is refused, whatever else is shown), whom its verified
// client certificate names, or nobody. Thread-safe but for Refresh, which one thread calls; outlives the server.
class CallerSecurity final : public PrincipalSource {
 public:
  // Reads the files and serves the token sockets. INVALID_ARGUMENT naming flag and file, FAILED_PRECONDITION.
  static absl::StatusOr<std::unique_ptr<CallerSecurity>> Open(const ServerOptions& options);

  absl::StatusOr<std::string> Identify(const Caller& caller) const override;

  // Null: plaintext.
  TlsIdentity* tls() { return tls_.get(); }

  // From time to time: takes up files that have changed. What can't be used is left, with a line in the log.
  void Refresh();

 private:
  // What a file was when last read, so that the log says each thing once.
  struct Seen {
    std::string digest;  // SHA-256 of what is in use.
    std::string error;   // Of the last attempt; empty where it went well.
    bool told = false;
  };

  explicit CallerSecurity(const ServerOptions& options);
  absl::Status ReadTokens();
  absl::Status StartSockets(const ServerOptions& options);
  static void Tell(const absl::Status& status, Seen* seen);

  const std::string token_file_;
  const TlsPaths tls_paths_;
  const bool anonymous_;
  std::unique_ptr<TlsIdentity> tls_;
  TlsMaterial tls_material_;
  Seen tls_seen_;
  Seen tokens_seen_;
  std::unique_ptr<PeerTokens> peer_tokens_;  // Null: no user of this machine is known by the uid.
  std::vector<std::unique_ptr<PeerTokenSocket>> sockets_;
  mutable Mutex mutex_;
  std::shared_ptr<const TokenTable> tokens_ ABSL_GUARDED_BY(mutex_);  // Null: no token file.
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_CALLER_SECURITY_H_
