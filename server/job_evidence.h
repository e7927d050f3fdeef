// What a round leaves besides its samples, as the JSON text that the job store keeps and the report shows.
#ifndef KEVAL_SERVER_JOB_EVIDENCE_H_
#define KEVAL_SERVER_JOB_EVIDENCE_H_

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/verdict/verdict.h"
#include "keval/v1/benchmark.pb.h"
#include "server/round_collector.h"

namespace keval::server {

using Json = nlohmann::ordered_json;

// One finished round, read back.
struct RoundEvidence {
  double seconds = 0;
  double device_seconds = 0;
  double foreign_cpu_cores = std::numeric_limits<double>::quiet_NaN();
  std::vector<SeriesEvidence> series;
  Json blocks;  // As docs/report_format.md has them, without the round.
};

std::string EncodeEvidence(const RoundData& round);
// DATA_LOSS for a text that EncodeEvidence did not write.
absl::StatusOr<RoundEvidence> DecodeEvidence(absl::string_view text);

// The memory rule of one primary or guard: medians over rounds.
struct SeriesMemory {
  double base_bytes = 0;
  double candidate_bytes = 0;
  double limit_bytes = 0;  // base + max(1 %, 1 MiB).
  bool met = false;
};

// By series; one that no round has recorded (peaks of 0) is absent, and so are controls.
std::map<std::string, SeriesMemory> JudgeMemory(const v1::JobPlan& plan, const std::vector<RoundEvidence>& rounds);

// kNotMet when a series breaks the rule; kNotRecorded when none does but one is absent.
verdict::Memory MemoryVerdict(const v1::JobPlan& plan, const std::map<std::string, SeriesMemory>& memory);

// Serialised with invalid UTF-8 replaced.
std::string JsonText(const Json& value);

// The parts of report.json of these names; ProfileJson has {"ops", "kernels", "kernel_ns", "dram"} by series.
Json ContractJson(const std::vector<ContractRowData>& rows);
// "C2 (bfloat16/plain_bias, candidate): measured 0.1, limit 0.01: why". Without its figures where it has none.
std::string ContractRowText(const ContractRowData& row);
Json ProfileJson(const ProfileData& profile);
// INVALID_ARGUMENT where `data`'s samples aren't whole quads.
absl::StatusOr<Json> DiagnosticsJson(const std::vector<DiagnosticRun>& runs, const DiagnosticsData& data);

// diagnostics.csv: a samples file with role `diagnostic`, which no verdict is computed from.
std::string DiagnosticsCsv(const std::vector<verdict::Sample>& samples);

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_EVIDENCE_H_
