// The byte by which a server knows whose code its worker ran when it died.
#ifndef KEVAL_SERVER_WORKER_RUNNING_PAGE_H_
#define KEVAL_SERVER_WORKER_RUNNING_PAGE_H_

#include <utility>

#include "absl/status/statusor.h"
#include "base/running.h"

namespace keval::worker {

// One page of memory that two processes share: the worker writes the mark, a store and no system call, and its server
// reads it when the worker has gone. Owns its mapping and, at the server's end, the descriptor that the worker
// inherits. Movable; the mark stays where it is.
class RunningPage {
 public:
  // The server's end, marked kHarness. UNAVAILABLE where the system has no memory or descriptor for it.
  static absl::StatusOr<RunningPage> Create();
  // The worker's end of what was inherited as `fd`, which stays open.
  static absl::StatusOr<RunningPage> Attach(int fd);

  RunningPage(RunningPage&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), mark_(std::exchange(other.mark_, nullptr)) {}
  RunningPage& operator=(RunningPage&&) = delete;
  ~RunningPage();

  int fd() const { return fd_; }
  RunningMark* mark() const { return mark_; }

 private:
  RunningPage(int fd, RunningMark* mark) : fd_(fd), mark_(mark) {}

  int fd_;  // -1 at the worker's end.
  RunningMark* mark_;
};

}  // namespace keval::worker

#endif  // KEVAL_SERVER_WORKER_RUNNING_PAGE_H_
