// The Unix socket beside a Unix address, on which a caller gets the token of its uid: gRPC doesn't show a peer's.
#ifndef KEVAL_SERVER_PEER_TOKEN_SOCKET_H_
#define KEVAL_SERVER_PEER_TOKEN_SOCKET_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "server/listen_address.h"
#include "server/peer_tokens.h"

namespace keval::server {

// What it is called, beside the address that it is for.
inline constexpr absl::string_view kPeerTokenSuffix = ".token";

// Answers each connection with one line, "TOKEN SECONDS" (how long the token is good for), and closes it. Who may
// connect is the file's mode, as with the address itself. The object owns the thread and the file; destroyed from any
// one thread. `tokens` must outlive it.
class PeerTokenSocket {
 public:
  // FAILED_PRECONDITION or INVALID_ARGUMENT naming `flag` and the path.
  static absl::StatusOr<std::unique_ptr<PeerTokenSocket>> Start(absl::string_view flag, const ListenAddress& beside,
                                                                const PeerTokens* tokens);
  ~PeerTokenSocket();
  PeerTokenSocket(const PeerTokenSocket&) = delete;
  PeerTokenSocket& operator=(const PeerTokenSocket&) = delete;

 private:
  PeerTokenSocket(std::string path, int listener, int stop, const PeerTokens* tokens);
  void Serve() const;
  void Answer(int connection) const;

  const std::string path_;
  const int listener_;
  const int stop_;  // An eventfd.
  const PeerTokens* const tokens_;
  std::thread thread_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_PEER_TOKEN_SOCKET_H_
