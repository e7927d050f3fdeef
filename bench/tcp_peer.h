// Plain TCP over loopback: the yardstick.
#ifndef KEVAL_BENCH_TCP_PEER_H_
#define KEVAL_BENCH_TCP_PEER_H_

#include <sys/types.h>

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace keval::bench {

// A process of its own, as a server would be, that takes and gives bytes in calls of 1 MiB over one connection. Its
// buffer has been touched, as must the caller's. Not thread-safe.
class TcpPeer {
 public:
  // Forks: call it before any thread is started. `bytes`: of the largest transfer.
  static absl::StatusOr<std::unique_ptr<TcpPeer>> Start(std::size_t bytes);
  ~TcpPeer();
  TcpPeer(const TcpPeer&) = delete;
  TcpPeer& operator=(const TcpPeer&) = delete;

  // From the first byte until the peer says that it has all, or until all are here.
  absl::StatusOr<absl::Duration> Push(absl::Span<const std::byte> bytes) const;
  absl::StatusOr<absl::Duration> Pull(absl::Span<std::byte> bytes) const;

 private:
  TcpPeer(pid_t pid, int socket) : pid_(pid), socket_(socket) {}

  const pid_t pid_;
  const int socket_;
};

}  // namespace keval::bench

#endif  // KEVAL_BENCH_TCP_PEER_H_
