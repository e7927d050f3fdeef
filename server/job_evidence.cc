#include "server/job_evidence.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/number.h"
#include "base/text.h"
#include "core/linear_logp/chunk_plan.h"
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

using Counts = std::map<std::string, std::int64_t>;

// Candidate minus base, of the names in which they differ.
Json DifferenceJson(const Counts& base, const Counts& candidate) {
  Counts difference = candidate;
  for (const auto& [name, count] : base) difference[name] -= count;
  Json out = Json::object();
  for (const auto& [name, count] : difference) {
    if (count != 0) out[name] = count;
  }
  return out;
}

Json CountsJson(const Counts& base, const Counts& candidate) {
  return {{"base", base}, {"candidate", candidate}, {"difference", DifferenceJson(base, candidate)}};
}

Json DramJson(const DramCount& base, const DramCount& candidate) {
  Json out = {{"base", nullptr}, {"candidate", nullptr}, {"difference", nullptr}};
  for (const auto& [name, count] : {std::pair("base", &base), std::pair("candidate", &candidate)}) {
    if (count->note.empty()) out[name] = {{"read_bytes", count->read_bytes}, {"written_bytes", count->written_bytes}};
  }
  out["note"] = base.note.empty() ? candidate.note : base.note;
  if (base.note.empty() && candidate.note.empty()) {
    out["difference"] = {{"read_bytes", candidate.read_bytes - base.read_bytes},
                         {"written_bytes", candidate.written_bytes - base.written_bytes}};
  }
  return out;
}

// Name and region, and what the static model says of the run's chunks.
Json DiagnosticHeadJson(const DiagnosticRun& run) {
  Json out = {{"name", run.name}, {"region", std::string(RegionName(run.region))}};
  const WorkShape& shape = run.shape;
  const auto plan =
      linear_logp::MakeChunkPlan(shape.num_tokens, shape.hidden_size, shape.vocab_size,
                                 shape.chunk_elems > 0 ? shape.chunk_elems : linear_logp::kDefaultChunkElems);
  if (!plan.ok()) return out;
  out["chunks"] = plan->chunks;
  out["predicted_saving_bytes"] = plan->saving_bytes;
  out["predicted_add_ops_saved"] = plan->add_ops_saved;
  return out;
}

// Without one both are NaN; a NaN that was measured stands beside a limit.
bool HasFigure(const ContractRowData& row) { return !(std::isnan(row.measured) && std::isnan(row.limit)); }

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
                      {"after", ReadingJson(block.after)},
                      {"throttle_reasons_between", block.reasons_between}});
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
                      {"foreign_cpu_cores", OptionalNumber(round.foreign_cpu_cores)},
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
    // A round of an older server lacks it.
    if (whole.contains("foreign_cpu_cores") && whole.at("foreign_cpu_cores").is_number()) {
      out.foreign_cpu_cores = whole.at("foreign_cpu_cores").get<double>();
    }
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
                    {"measured", HasFigure(row) ? verdict::NumberToJson(row.measured) : Json(nullptr)},
                    {"limit", HasFigure(row) ? verdict::NumberToJson(row.limit) : Json(nullptr)},
                    {"status", row.status},
                    {"why", row.why}});
  }
  return {{"passed", passed}, {"rows", std::move(list)}};
}

std::string ContractRowText(const ContractRowData& row) {
  std::string text = absl::StrCat(row.id, " (", row.case_name, row.case_name.empty() ? "" : ", ", row.arm, ")");
  if (HasFigure(row)) {
    absl::StrAppend(&text, ": measured ", DoubleText(row.measured), ", limit ", DoubleText(row.limit));
  }
  if (!row.why.empty()) absl::StrAppend(&text, ": ", row.why);
  return PrintableText(text, 1024);
}

Json ProfileJson(const ProfileData& profile) {
  Json out = Json::object();
  for (const auto& [series, arms] : profile.by_series) {
    const auto& [base, candidate] = arms;
    Json kernels = CountsJson(base.kernels, candidate.kernels);
    kernels["note"] = base.kernels_note.empty() ? candidate.kernels_note : base.kernels_note;
    out[series] = {{"ops", CountsJson(base.ops, candidate.ops)},
                   {"kernels", std::move(kernels)},
                   {"kernel_ns", CountsJson(base.kernel_ns, candidate.kernel_ns)},
                   {"dram", DramJson(base.dram, candidate.dram)}};
  }
  return out;
}

absl::StatusOr<Json> DiagnosticsJson(const std::vector<DiagnosticRun>& runs, const DiagnosticsData& data) {
  const auto measured =
      verdict::MeasureSeries(data.samples, [](std::size_t index) { return absl::StrCat("sample ", index); });
  if (!measured.ok()) return measured.status();
  constexpr double kNsPerMs = 1e6;
  Json out = Json::array();
  for (const DiagnosticRun& run : runs) {
    Json entry = DiagnosticHeadJson(run);
    if (const auto absent = data.absent.find(run.name); absent != data.absent.end()) {
      entry["absent"] = absent->second;
      out.push_back(std::move(entry));
      continue;
    }
    const auto series = std::find_if(measured->begin(), measured->end(),
                                     [&](const verdict::MeasuredSeries& one) { return one.name == run.name; });
    if (series == measured->end() || series->rounds.empty()) continue;
    const verdict::MeasuredRound& round = series->rounds.front();
    entry["base_ms"] = verdict::NumberToJson(Median(round.block_median_ns[0]) / kNsPerMs);
    entry["candidate_ms"] = verdict::NumberToJson(Median(round.block_median_ns[1]) / kNsPerMs);
    entry["L"] = round.value.has_value() ? verdict::NumberToJson(*round.value) : Json(nullptr);
    entry["quads"] = round.quads;
    out.push_back(std::move(entry));
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
