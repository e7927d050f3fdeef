// How long a call takes on its device.
//
// Hazard: on a GPU the time runs from when the device reaches the start mark, so Start must be called with the queue
// drained (see BlockRunner), else earlier work is timed too.
#ifndef KEVAL_CORE_MEASURE_TIMER_H_
#define KEVAL_CORE_MEASURE_TIMER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/measure/raw_memory.h"

namespace keval::measure {

// One interval at a time; thread-compatible. The measured code never sees it.
class Timer {
 public:
  // Device events on `place.stream` on a GPU; the steady clock on a CPU.
  static absl::StatusOr<std::unique_ptr<Timer>> Create(MemoryPlace place);
  virtual ~Timer() = default;

  virtual absl::Status Start() = 0;
  // Waits for the work queued since Start; nanoseconds, at least 1.
  virtual absl::StatusOr<std::int64_t> StopNs() = 0;
};

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_TIMER_H_
