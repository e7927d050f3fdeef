// Whose code a process is running, kept where another one can read it after this one has died.
#ifndef KEVAL_BASE_RUNNING_H_
#define KEVAL_BASE_RUNNING_H_

#include <atomic>
#include <cstdint>
#include <exception>

namespace keval {

// kArm and kBase last until what was queued has been awaited, so that a kernel that never ends is the arm's. kBase:
// base in another arm's process, run to compare with.
enum class Running : std::uint8_t { kHarness = 0, kArm = 1, kBase = 2 };

using RunningMark = std::atomic<Running>;
static_assert(RunningMark::is_always_lock_free && sizeof(RunningMark) == 1, "shared between processes as one byte");

// `who` runs for as long as the object lives, the harness after it, unless an exception ends it: that is still `who`'s,
// and the mark stays for whoever catches it. `mark` outlives the object.
class RunningScope {
 public:
  RunningScope(RunningMark* mark, Running who) : mark_(mark) { mark_->store(who, std::memory_order_relaxed); }
  ~RunningScope() {
    if (std::uncaught_exceptions() == exceptions_) mark_->store(Running::kHarness, std::memory_order_relaxed);
  }
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  RunningMark* const mark_;
  const int exceptions_ = std::uncaught_exceptions();
};

}  // namespace keval

#endif  // KEVAL_BASE_RUNNING_H_
