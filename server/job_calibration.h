// How much a device's A/A jobs differ from nothing: the source of default margins.
#ifndef KEVAL_SERVER_JOB_CALIBRATION_H_
#define KEVAL_SERVER_JOB_CALIBRATION_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/verdict/verdict.h"
#include "keval/v1/benchmark.pb.h"
#include "keval/v1/server_info.pb.h"
#include "server/job_store.h"

namespace keval::server {

// Tells apart whose noise may differ: devices (a GPU by its UUID, a CPU by its model), and shapes on them.
std::string CalibrationKey(const v1::DeviceInfo& device, absl::string_view series);

// What an A/A job that ended at `look` tells: L-hat of each primary and guard over each six of its rounds, for six are
// what a job decides on at its first look, however many rounds this one took.
std::vector<CalibrationPoint> CalibrationPoints(const v1::DeviceInfo& device, const verdict::Look& look);

// Where a series' margin comes from when the spec names none.
struct KnownNoise {
  std::vector<double> means;  // L-hat of six rounds each; at least one.
  v1::JobPlan::DeltaCalibration source;
};

struct NoiseRecord {
  std::map<std::string, KnownNoise> by_series;  // Of primaries and guards; one of which nothing is known is absent.
  std::vector<std::string> unused;              // The spec's calibrations that give no margin, each with the reason.
};

// What is known of the noise of `spec`'s series (as NormalizeSpec left it) on `device`: by the spec's own calibrations
// for this device, else by A/A jobs of that shape in the store. The store's errors.
absl::StatusOr<NoiseRecord> FindNoise(const v1::BenchmarkSpec& spec, const v1::DeviceInfo& device, JobStore* store);

// INVALID_ARGUMENT naming the field for calibrations that can't be: too many, a digest that is none, texts that are too
// long, no mean or too many, a mean that no round can give, two for the same device and series.
absl::Status CheckMarginCalibrations(const v1::BenchmarkSpec& spec);

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_CALIBRATION_H_
