// A benchmark spec on its way in: defaults filled, everything checked, every refusal naming a field. Pure functions.
#ifndef KEVAL_SERVER_JOB_SPEC_H_
#define KEVAL_SERVER_JOB_SPEC_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "keval/v1/benchmark.pb.h"
#include "keval/v1/server_info.pb.h"
#include "server/round_collector.h"

namespace keval::server {

// What this server has and allows, as ServerInfo tells it.
struct SpecContext {
  v1::Limits limits;  // max_series, max_job_device_seconds and max_queued_jobs matter here; 0: the defaults below.
  std::vector<v1::DeviceInfo> devices;
  std::vector<v1::VariantInfo> variants;
  v1::BuildInfo build;  // Written into reports.
};

inline constexpr int kDefaultMaxSeries = 64;
inline constexpr double kDefaultMaxJobDeviceSeconds = 7200;
inline constexpr int kDefaultMaxQueuedJobs = 64;

// The spec with every default filled in but target.device and seed, which are the server's to choose. INVALID_ARGUMENT
// naming the field's path, e.g. "primaries[2].vocab_size". Takes time bounded by limits.max_series, not by the spec.
absl::StatusOr<v1::BenchmarkSpec> NormalizeSpec(const v1::BenchmarkSpec& spec, const SpecContext& context);

// SHA-256 (hexadecimal) of a spec that NormalizeSpec returned.
std::string SpecDigest(const v1::BenchmarkSpec& normalized);

// "4096x2048x32768/bfloat16/bias", with "/autocast=…" and "/chunk_elems=…" behind it where they aren't the defaults.
// `shape` as NormalizeSpec leaves it.
std::string SeriesName(const v1::Shape& shape);

WorkShape ToWorkShape(const v1::Shape& shape);

JobArms ToJobArms(const v1::BenchmarkSpec& normalized);

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_SPEC_H_
