// Where a server listens: "host:port", "[v6]:port" or "unix:/abs/path".
#ifndef KEVAL_SERVER_LISTEN_ADDRESS_H_
#define KEVAL_SERVER_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace keval::server {

struct ListenAddress {
  std::string host;  // Without brackets; empty for a Unix socket.
  int port = 0;      // 0: a free one.
  std::string path;  // Of a Unix socket; empty otherwise.

  bool is_unix() const { return !path.empty(); }
  // As gRPC and clients write it, with `bound_port` in the port's place.
  std::string Text(int bound_port) const;
  std::string Text() const { return Text(port); }
};

// INVALID_ARGUMENT naming `flag`.
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view flag, absl::string_view text);

// Whether only this machine reaches it: a Unix socket, or a host all of whose addresses are loopback ones.
bool IsLocal(const ListenAddress& address);

// Makes the address ready to be bound and says plainly why it can't be: FAILED_PRECONDITION naming `flag` and the
// address. A Unix socket's file that nobody listens on (a killed server's) is removed; a file of another kind, or one
// that a server answers on, never is.
absl::Status PrepareToListen(absl::string_view flag, const ListenAddress& address);

}  // namespace keval::server

#endif  // KEVAL_SERVER_LISTEN_ADDRESS_H_
