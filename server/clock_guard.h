// Gives a GPU's clock back when the server that locked it is killed.
#ifndef KEVAL_SERVER_CLOCK_GUARD_H_
#define KEVAL_SERVER_CLOCK_GUARD_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace keval::server {

// A process in a session of its own, so that no signal to the server's group reaches it. It does nothing until this
// object, or the process that holds it, is gone; then it gives back what is still recorded (measure::RestoreClock), and
// ends. Take the lock after it, so that it outlives the lock. Thread-compatible; its owner waits for its end.
class ClockGuard {
 public:
  // `program`: kevald. UNAVAILABLE where it can't be started.
  static absl::StatusOr<std::unique_ptr<ClockGuard>> Start(const std::string& program, const std::string& record_folder,
                                                           const std::string& uuid);
  ~ClockGuard();
  ClockGuard(const ClockGuard&) = delete;
  ClockGuard& operator=(const ClockGuard&) = delete;

 private:
  ClockGuard(pid_t pid, int life) : pid_(pid), life_(life) {}

  const pid_t pid_;
  const int life_;  // The end of a pipe that nobody writes to.
};

// The flag with which kevald is such a process, followed by the record's folder and the device's UUID.
inline constexpr char kGuardClockFlag[] = "--guard_clock";

// The whole of that process: returns once the server is gone and the clock its own. 0, or 1 where it can't be given
// back: the next start tries again.
int GuardClock(const std::string& record_folder, const std::string& uuid);

}  // namespace keval::server

#endif  // KEVAL_SERVER_CLOCK_GUARD_H_
