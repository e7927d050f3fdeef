// How a connection is protected, and what it shows of its caller.
#ifndef KEVAL_CLIENT_CREDENTIALS_H_
#define KEVAL_CLIENT_CREDENTIALS_H_

#include <grpcpp/security/credentials.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/channel.h"
#include "keval/connection.h"

namespace keval {

// Of one connection to `server`. Thread-safe.
class Credentials {
 public:
  // Reads the files that `options` names. INVALID_ARGUMENT naming the option (field) where one can't be used, or where
  // a token would go to another machine in clear text.
  static absl::StatusOr<std::shared_ptr<Credentials>> Make(Address server, const ConnectionOptions& options);

  // TLS but for Unix sockets, where the options ask for it.
  TransportSecurity ForChannel(const Address& address) const;

  // Whether the caller's token may go to an address that the server named.
  bool MayGoTo(const Address& address) const;

  // The value of "authorization" for a call that begins now; empty: none. The token file is read for each call, so that
  // a token may be replaced; a token for this process's uid is asked for at the socket beside the server's, once in
  // half its lifetime and whenever the server is another one. INVALID_ARGUMENT, UNAVAILABLE, UNAUTHENTICATED.
  absl::StatusOr<std::string> Authorization();

 private:
  Credentials(Address server, const ConnectionOptions& options)
      : server_(std::move(server)), token_file_(options.token_file), tls_name_(options.tls_server_name) {}
  absl::StatusOr<std::string> UidToken();

  const Address server_;
  const std::string token_file_;
  const std::string tls_name_;
  std::shared_ptr<grpc::ChannelCredentials> tls_;  // Null: plaintext.

  Mutex mutex_;
  // Of the token socket that the token came from: a restarted server makes a new file, and takes its own tokens only.
  struct SocketFile {
    ino_t inode = 0;
    std::pair<std::int64_t, std::int64_t> changed;  // Seconds and nanoseconds.
    friend bool operator==(const SocketFile&, const SocketFile&) = default;
  };
  SocketFile socket_file_ ABSL_GUARDED_BY(mutex_);
  std::string uid_token_ ABSL_GUARDED_BY(mutex_);
  absl::Time renew_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace keval

#endif  // KEVAL_CLIENT_CREDENTIALS_H_
