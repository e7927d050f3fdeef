// Whose code a process is running, kept where another one can read it after this one has died. Torch-free.
#ifndef KEVAL_CORE_MEASURE_RUNNING_H_
#define KEVAL_CORE_MEASURE_RUNNING_H_

#include <atomic>
#include <cstdint>

namespace keval::measure {

// kArm and kBase last until what was queued has been awaited, so that a kernel that never ends is the arm's. kBase:
// base in another arm's process, run to compare with.
enum class Running : std::uint8_t { kHarness = 0, kArm = 1, kBase = 2 };

using RunningMark = std::atomic<Running>;
static_assert(RunningMark::is_always_lock_free && sizeof(RunningMark) == 1, "shared between processes as one byte");

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_RUNNING_H_
