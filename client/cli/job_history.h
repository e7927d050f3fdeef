// Past jobs of one spec, told apart by what they ran on.
#ifndef KEVAL_CLIENT_CLI_JOB_HISTORY_H_
#define KEVAL_CLIENT_CLI_JOB_HISTORY_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "keval/v1/benchmark.pb.h"

namespace keval::cli {

// What times depend on besides the spec, name to text: device, driver, CUDA, LibTorch, the worker's hash, …
using Fingerprint = std::map<std::string, std::string>;

struct PastSeries {
  std::string series;
  std::string role;
  std::string status;
  // In ln units, the interval at the level spent at the job's last look; absent where there is none.
  std::optional<double> L;
  std::optional<double> lo;
  std::optional<double> hi;
  int rounds = 0;
};

struct PastJob {
  v1::BenchmarkJob job;
  std::optional<Fingerprint> fingerprint;  // Absent: the job hasn't ended, or ended before it knew.
  std::vector<PastSeries> series;
};

struct FactChange {
  std::string fact;
  std::string before;  // "" where it was not told.
  std::string after;
};

// `report`: the job's report.json. What it doesn't say stays empty.
PastJob ReadPastJob(const v1::BenchmarkJob& job, const nlohmann::json& report);

// What differs, by name.
std::vector<FactChange> Changes(const Fingerprint& before, const Fingerprint& after);

// Jobs are in order, the newest first. FAILED_PRECONDITION (field "fingerprint"), saying which job differs from the
// newest in what, unless all that have a fingerprint have the same.
absl::Status CheckComparable(const std::vector<PastJob>& jobs);

nlohmann::ordered_json HistoryToJson(absl::string_view spec_digest, const std::vector<PastJob>& jobs);
// For a person; where the fingerprint changes from a job to the next older one, a line says how.
std::string HistoryText(const std::vector<PastJob>& jobs);

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_JOB_HISTORY_H_
