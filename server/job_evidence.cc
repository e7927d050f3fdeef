#include "server/job_evidence.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/verdict/json.h"
#include "core/verdict/measured_series.h"

namespace keval::server {
namespace {

constexpr double kMemoryFraction = 0.01;
constexpr double kMemoryBytes = 1048576;

// A reading that the device doesn't give is null.
Json OptionalNumber(double value) { return std::isnan(value) ? Json(nullptr) : verdict::NumberToJson(value); }

Json ReadingJson(const DeviceReading& reading) {
  return {{"sm_clock_mhz", OptionalNumber(reading.sm_clock_mhz)},
          {"memory_clock_mhz", OptionalNumber(reading.memory_clock_mhz)},
          {"power_watts", OptionalNumber(reading.power_watts)},
          {"temperature_celsius", OptionalNumber(reading.temperature_celsius)},
          {"throttle_reasons", reading.throttle_reasons},
          {"other_processes", reading.other_processes < 0 ? Json(nullptr) : Json(reading.other_processes)}};
}

Json DispatchJson(const DispatchRecord& dispatch) {
  return {{"variant", dispatch.variant},
          {"path", dispatch.path},
          {"reason", dispatch.reason},
          {"fallback", dispatch.fallback}};
}

DispatchRecord DispatchFrom(const Json& value) {
  return {.variant = value.at("variant").get<std::string>(),
          .path = value.at("path").get<std::string>(),
          .reason = value.at("reason").get<std::string>(),
          .fallback = value.at("fallback").get<bool>()};
}

// NaN for none.
double Median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

absl::string_view RegionName(DiagnosticRegion region) {
  switch (region) {
    case DiagnosticRegion::kBackward:
      return "backward";
    case DiagnosticRegion::kWeightGradient:
      return "weight_gradient";
    case DiagnosticRegion::kForwardBackward:
      break;
  }
  return "forward_backward";
}

Json ArmProfileJson(const std::map<std::string, std::int64_t>& base,
                    const std::map<std::string, std::int64_t>& candidate) {
  return {{"base", base}, {"candidate", candidate}};
}

}  // namespace

std::string JsonText(const Json& value) {
  constexpr int kIndent = 1;
  return value.dump(kIndent, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string EncodeEvidence(const RoundData& round) {
  Json blocks = Json::array();
  for (const BlockRecord& block : round.blocks) {
    blocks.push_back({{"series", block.series},
                      {"quad", block.quad},
                      {"pos", block.pos},
                      {"arm", std::string(1, block.arm)},
                      {"before", ReadingJson(block.before)},
                      {"after", ReadingJson(block.after)}});
  }
  Json series = Json::array();
  for (const SeriesEvidence& evidence : round.evidence) {
    series.push_back({{"series", evidence.series},
                      {"base_peak_bytes", evidence.base_peak_bytes},
                      {"candidate_peak_bytes", evidence.candidate_peak_bytes},
                      {"base_dispatch", DispatchJson(evidence.base_dispatch)},
                      {"candidate_dispatch", DispatchJson(evidence.candidate_dispatch)}});
  }
  const Json whole = {{"seconds", round.seconds},
                      {"device_seconds", round.device_seconds},
                      {"blocks", std::move(blocks)},
                      {"series", std::move(series)}};
  return whole.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<RoundEvidence> DecodeEvidence(absl::string_view text) {
  try {
    const Json whole = Json::parse(text.begin(), text.end());
    RoundEvidence out;
    out.seconds = whole.at("seconds").get<double>();
    out.device_seconds = whole.at("device_seconds").get<double>();
    out.blocks = whole.at("blocks");
    for (const Json& value : whole.at("series")) {
      out.series.push_back({.series = value.at("series").get<std::string>(),
                            .base_peak_bytes = value.at("base_peak_bytes").get<std::int64_t>(),
                            .candidate_peak_bytes = value.at("candidate_peak_bytes").get<std::int64_t>(),
                            .base_dispatch = DispatchFrom(value.at("base_dispatch")),
                            .candidate_dispatch = DispatchFrom(value.at("candidate_dispatch"))});
    }
    return out;
  } catch (const Json::exception&) {
    return absl::DataLossError("a round's evidence can't be read");
  }
}

std::map<std::string, SeriesMemory> JudgeMemory(const v1::JobPlan& plan, const std::vector<RoundEvidence>& rounds) {
  std::map<std::string, SeriesMemory> out;
  for (const auto& series : plan.series()) {
    if (series.role() == "control") continue;
    std::vector<double> base;
    std::vector<double> candidate;
    for (const RoundEvidence& round : rounds) {
      for (const SeriesEvidence& evidence : round.series) {
        if (evidence.series != series.series()) continue;
        if (evidence.base_peak_bytes <= 0 || evidence.candidate_peak_bytes <= 0) continue;
        base.push_back(static_cast<double>(evidence.base_peak_bytes));
        candidate.push_back(static_cast<double>(evidence.candidate_peak_bytes));
      }
    }
    if (base.empty()) continue;
    SeriesMemory memory{.base_bytes = Median(base), .candidate_bytes = Median(candidate)};
    memory.limit_bytes = memory.base_bytes + std::max(kMemoryFraction * memory.base_bytes, kMemoryBytes);
    memory.met = memory.candidate_bytes <= memory.limit_bytes;
    out[series.series()] = memory;
  }
  return out;
}

verdict::Memory MemoryVerdict(const v1::JobPlan& plan, const std::map<std::string, SeriesMemory>& memory) {
  bool recorded = true;
  for (const auto& series : plan.series()) {
    if (series.role() == "control") continue;
    const auto found = memory.find(series.series());
    if (found == memory.end()) {
      recorded = false;
    } else if (!found->second.met) {
      return verdict::Memory::kNotMet;
    }
  }
  return recorded ? verdict::Memory::kMet : verdict::Memory::kNotRecorded;
}

Json ContractJson(const std::vector<ContractRowData>& rows) {
  Json list = Json::array();
  bool passed = !rows.empty();
  for (const ContractRowData& row : rows) {
    passed = passed && row.status != "fail";
    list.push_back({{"id", row.id},
                    {"arm", row.arm},
                    {"case", row.case_name},
                    {"measured", verdict::NumberToJson(row.measured)},
                    {"limit", verdict::NumberToJson(row.limit)},
                    {"status", row.status},
                    {"why", row.why}});
  }
  return {{"passed", passed}, {"rows", std::move(list)}};
}

Json ProfileJson(const ProfileData& profile) {
  Json out = Json::object();
  for (const auto& [series, arms] : profile.by_series) {
    out[series] = {{"ops", ArmProfileJson(arms.first.ops, arms.second.ops)},
                   {"kernels", ArmProfileJson(arms.first.kernels, arms.second.kernels)}};
  }
  return out;
}

absl::StatusOr<Json> DiagnosticsJson(const std::vector<DiagnosticRun>& runs,
                                     const std::vector<verdict::Sample>& samples) {
  const auto measured =
      verdict::MeasureSeries(samples, [](std::size_t index) { return absl::StrCat("sample ", index); });
  if (!measured.ok()) return measured.status();
  constexpr double kNsPerMs = 1e6;
  Json out = Json::array();
  for (const DiagnosticRun& run : runs) {
    const auto series = std::find_if(measured->begin(), measured->end(),
                                     [&](const verdict::MeasuredSeries& one) { return one.name == run.name; });
    if (series == measured->end() || series->rounds.empty()) continue;
    const verdict::MeasuredRound& round = series->rounds.front();
    out.push_back({{"name", run.name},
                   {"region", std::string(RegionName(run.region))},
                   {"base_ms", verdict::NumberToJson(Median(round.block_median_ns[0]) / kNsPerMs)},
                   {"candidate_ms", verdict::NumberToJson(Median(round.block_median_ns[1]) / kNsPerMs)},
                   {"L", round.value.has_value() ? verdict::NumberToJson(*round.value) : Json(nullptr)},
                   {"quads", round.quads}});
  }
  return out;
}

std::string DiagnosticsCsv(const std::vector<verdict::Sample>& samples) {
  std::string csv = absl::StrCat(verdict::kSamplesHeader, "\n");
  for (const verdict::Sample& s : samples) {
    absl::StrAppend(&csv, s.series, ",diagnostic,", s.round, ",", s.quad, ",", s.pos, ",", std::string(1, s.arm), ",",
                    s.rep, ",", s.ns, ",", s.throttled ? 1 : 0, "\n");
  }
  return csv;
}

}  // namespace keval::server
