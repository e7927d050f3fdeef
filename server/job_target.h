// Which device a job runs on, and whether it can.
#ifndef KEVAL_SERVER_JOB_TARGET_H_
#define KEVAL_SERVER_JOB_TARGET_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "keval/v1/benchmark.pb.h"
#include "server/job_spec.h"

namespace keval::server {

// Chooses target.device where it is empty and checks that the device can run a spec that NormalizeSpec returned.
// FAILED_PRECONDITION naming the field: device unknown or not for benchmarks, compute capability, a variant or dtype
// that it can't run, a round beyond its memory, or a time that no such device could keep within max_device_seconds.
absl::Status ResolveTarget(const SpecContext& context, v1::BenchmarkSpec* spec);

// "9.0" as 900, so that two compare as versions do; nullopt for what isn't MAJOR.MINOR.
std::optional<std::int64_t> ParseCapability(absl::string_view text);

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_TARGET_H_
