// What the times were measured on and with.
#ifndef KEVAL_CORE_MEASURE_ENVIRONMENT_H_
#define KEVAL_CORE_MEASURE_ENVIRONMENT_H_

#include <map>
#include <string>

#include "core/measure/device_session.h"

namespace keval::measure {

// Name to printable text, for the report: CPU model, cores, governor, kernel, C library and allocator, threads,
// LibTorch and its settings, compiler and flags, timer, what the timed region includes, cache overwrite; on a GPU also
// model, UUID, driver, CUDA, clocks, limits, throttle reasons, power, temperature and other processes. What can't be
// known says so ("not told", "unavailable: why").
std::map<std::string, std::string> DescribeEnvironment(const DeviceSession& session);

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_ENVIRONMENT_H_
