// Gives a GPU's clock back when the server that locked it is killed.
#ifndef KEVAL_SERVER_CLOCK_GUARD_H_
#define KEVAL_SERVER_CLOCK_GUARD_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace keval::server {

// A process in a session of its own, so that no signal to the server's group reaches it. It does nothing until this
// object, or the process that holds it, is gone; then it gives back what is still recorded as the owner's
// (measure::RestoreClock), and ends. Take the lock after it, so that it outlives the lock. It shares the fate of its
// PID namespace: a container that ends takes it along. Thread-compatible; its owner waits for its end.
class ClockGuard {
 public:
  // Returns once it watches. `program`: kevald. `owner`: of the lock that is to be taken. UNAVAILABLE where it can't be
  // started, or doesn't say that it watches.
  static absl::StatusOr<std::unique_ptr<ClockGuard>> Start(const std::string& program, const std::string& record_folder,
                                                           const std::string& uuid, const std::string& owner);
  ~ClockGuard();
  ClockGuard(const ClockGuard&) = delete;
  ClockGuard& operator=(const ClockGuard&) = delete;

  pid_t pid() const { return pid_; }
  // Whether it still watches: somebody may have killed it. Then the lock's own end, or the next start, gives the clock
  // back.
  bool Watches() const;

 private:
  ClockGuard(pid_t pid, int life) : pid_(pid), life_(life) {}

  const pid_t pid_;
  const int life_;  // The end of a pipe that nobody writes to.
};

// The flag with which kevald is such a process, followed by the record's folder, the device's UUID and the owner.
inline constexpr char kGuardClockFlag[] = "--guard_clock";

// The whole of that process: says on stdout that it watches, and returns once its stdin has ended and the clock is its
// own. 0, or 1 where it can't be given back in some tries: that is said on stderr, and the next start tries again.
int GuardClock(const std::string& record_folder, const std::string& uuid, const std::string& owner);

}  // namespace keval::server

#endif  // KEVAL_SERVER_CLOCK_GUARD_H_
