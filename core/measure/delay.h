// A delay of known size in a timed call: with it the procedure is measured on effects that are known.
#ifndef KEVAL_CORE_MEASURE_DELAY_H_
#define KEVAL_CORE_MEASURE_DELAY_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/measure/raw_memory.h"

namespace keval::measure {

// Makes each call longer by a fraction of the time that this very call took, so that ln t grows by ln(1 + fraction)
// however fast the process happens to be. Begin stands before the call's work, End behind it, on the thread that makes
// the call. One call at a time; thread-compatible. The owner is an Arm.
//
// On a GPU both are kernels of one thread on `place.stream`: the first notes the device's clock, the second waits until
// it has moved on. They cost a few microseconds themselves, so the arm that isn't slowed has them too, with fraction 0.
// The device's clock (globaltimer) advances in steps, of 32 ns to 1 us by device: that much of a call is uncertain.
class Delay {
 public:
  // REQUIRES fraction >= 0, and on a GPU that the device is current. RESOURCE_EXHAUSTED where the device has no memory.
  static absl::StatusOr<std::unique_ptr<Delay>> Create(MemoryPlace place, double fraction);
  virtual ~Delay() = default;

  virtual absl::Status Begin() = 0;
  virtual absl::Status End() = 0;
};

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_DELAY_H_
