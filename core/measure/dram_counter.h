// What a call moves to and from the GPU's memory, as its hardware counters say (CUPTI's range profiler).
#ifndef KEVAL_CORE_MEASURE_DRAM_COUNTER_H_
#define KEVAL_CORE_MEASURE_DRAM_COUNTER_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/measure/device_session.h"

namespace keval::measure {

struct DramBytes {
  std::int64_t read = 0;
  // What the call left in the L2 cache is not among them.
  std::int64_t written = 0;
};

// Runs `call`, from an overwritten L2 cache like a timed one, as often as the counters need passes (once on the devices
// that were tried). UNAVAILABLE, with the reason, where there are no counters: on a CPU, where the driver keeps them
// for administrators, or where the device or another profiler denies them; otherwise `call`'s status. Not for timed
// calls; not in a process that traces kernels. Not thread-safe.
absl::StatusOr<DramBytes> CountDramBytes(const DeviceSession& session, const std::function<absl::Status()>& call);

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_DRAM_COUNTER_H_
