// Which kernels a call runs on the GPU and for how long, as the driver reports them (CUPTI activity records).
#ifndef KEVAL_CORE_MEASURE_KERNEL_TRACE_H_
#define KEVAL_CORE_MEASURE_KERNEL_TRACE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/measure/device_session.h"

namespace keval::measure {

// All launches of one kernel.
struct KernelSum {
  std::int64_t count = 0;
  std::int64_t ns = 0;  // On the device, from each launch's start to its end; tracing may stretch it.
};
using KernelsByName = std::map<std::string, KernelSum>;

// Runs `call` and sums up the kernels that the device ran for it; empty on a CPU. Returns `call`'s status where that is
// not OK; UNAVAILABLE where CUPTI can't be had (another profiler has it, or the driver forbids it). Not for timed
// calls: tracing slows launches. Not thread-safe.
absl::StatusOr<KernelsByName> TraceKernels(const DeviceSession& session, const std::function<absl::Status()>& call);

// A kernel's mangled name as people know it: demangled, without return type, parameters and template arguments:
// "at::native::vectorized_elementwise_kernel". A name that isn't mangled is returned as it is.
std::string KernelName(absl::string_view mangled);

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_KERNEL_TRACE_H_
