#include "server/report_builder.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/sha256.h"
#include "core/verdict/json.h"
#include "core/verdict/summary.h"
#include "core/verdict/verdict.h"
#include "google/protobuf/util/json_util.h"
#include "server/job_evidence.h"
#include "server/job_plan.h"
#include "server/report_noise.h"
#include "server/report_text.h"

namespace keval::server {
namespace {

// A stored document; an empty text is null.
absl::StatusOr<Json> ParseDocument(const std::string& text) {
  if (text.empty()) return Json(nullptr);
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return absl::DataLossError("a stored document of the job can't be read");
  return parsed;
}

// In proto field names, every field; 64-bit integers are strings with all digits, as protobuf writes them.
absl::StatusOr<Json> MessageJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) {
    return absl::DataLossError("a stored message of the job can't be shown");
  }
  return ParseDocument(text);
}

// Everything that BuildReport reads more than once.
struct Parsed {
  std::vector<verdict::Sample> samples;
  std::vector<RoundEvidence> evidence;
  v1::JobPlan plan;  // As declared, or what it would have been without a pilot.
  verdict::Config config;
  std::string samples_csv;
};

absl::StatusOr<Parsed> Parse(const JobRecord& record) {
  Parsed out;
  out.plan = record.job.has_plan() ? record.job.plan() : MakePlan(record.job.spec(), {}, {});
  out.config = VerdictConfig(record.job.spec(), out.plan);
  out.samples_csv = absl::StrCat(verdict::kSamplesHeader, "\n");
  for (const StoredRound& round : record.rounds) {
    auto samples = verdict::ParseSamples(round.samples);
    if (!samples.ok()) return absl::DataLossError("a stored round's samples can't be read");
    out.samples.insert(out.samples.end(), samples->begin(), samples->end());
    const std::size_t header = round.samples.find('\n');
    out.samples_csv += round.samples.substr(header + 1);
    auto evidence = DecodeEvidence(round.evidence);
    if (!evidence.ok()) return evidence.status();
    out.evidence.push_back(*std::move(evidence));
  }
  return out;
}

// Which calibration a margin comes from.
Json DeltaCalibrationJson(const v1::JobPlan::DeltaCalibration& from) {
  Json json = {{"origin", from.origin()}, {"rounds", from.rounds()}, {"device", from.device()}, {"uuid", from.uuid()}};
  if (!from.sha256().empty()) json["sha256"] = from.sha256();
  return json;
}

Json TrafficJson(const v1::PlanResponse& traffic) {
  return {{"chunk_tokens", traffic.chunk_tokens()}, {"chunks", traffic.chunks()},
          {"base_bytes", traffic.base_bytes()},     {"candidate_bytes", traffic.candidate_bytes()},
          {"saving_bytes", traffic.saving_bytes()}, {"add_ops_saved", traffic.add_ops_saved()}};
}

absl::StatusOr<Json> PlanJson(const v1::BenchmarkJob& job) {
  Json series = Json::array();
  for (const auto& one : job.plan().series()) {
    auto shape = MessageJson(one.shape());
    if (!shape.ok()) return shape.status();
    Json entry = {{"series", one.series()},
                  {"role", one.role()},
                  {"display_name", one.shape().display_name()},
                  {"shape", *std::move(shape)}};
    if (one.role() != "control") {
      entry["delta"] = verdict::NumberToJson(one.delta());
      entry["delta_source"] = one.delta_source();
    }
    if (one.has_delta_calibration()) entry["delta_calibration"] = DeltaCalibrationJson(one.delta_calibration());
    entry["pilot_ns"] = verdict::NumberToJson(one.pilot_ns());
    entry["quads"] = one.quads();
    entry["timed_repetitions"] = one.timed_repetitions();
    entry["discarded_repetitions"] = one.discarded_repetitions();
    entry["predicted_traffic"] = TrafficJson(one.traffic());
    series.push_back(std::move(entry));
  }
  return Json{{"procedure_version", job.plan().procedure_version()},
              {"process_mode",
               job.spec().procedure().process_mode() == v1::PROCESS_MODE_SEQUENTIAL ? "sequential" : "concurrent"},
              {"predicted_device_seconds", verdict::NumberToJson(job.plan().predicted_device_seconds())},
              {"predicted_memory_bytes", job.plan().predicted_memory_bytes()},
              {"seed", job.spec().seed()},
              {"series", std::move(series)}};
}

// What the rounds so far were predicted to take, and took.
Json TimeJson(const Parsed& parsed, const v1::BenchmarkSpec& spec) {
  double device_seconds = 0;
  double seconds = 0;
  for (const RoundEvidence& round : parsed.evidence) {
    device_seconds += round.device_seconds;
    seconds += round.seconds;
  }
  const auto& looks = spec.procedure().looks();
  const double part = looks.empty() ? 0 : static_cast<double>(parsed.evidence.size()) / looks.Get(looks.size() - 1);
  return {{"rounds", parsed.evidence.size()},
          {"predicted_device_seconds", verdict::NumberToJson(part * parsed.plan.predicted_device_seconds())},
          {"device_seconds", verdict::NumberToJson(device_seconds)},
          {"seconds", verdict::NumberToJson(seconds)}};
}

Json DispatchJson(const DispatchRecord& dispatch) {
  return {{"variant", dispatch.variant},
          {"path", dispatch.path},
          {"reason", dispatch.reason},
          {"fallback", dispatch.fallback}};
}

// Adds to a series' entry what the samples don't hold.
absl::Status AddToSeries(const Parsed& parsed, const v1::JobPlan::SeriesPlan& plan,
                         const std::map<std::string, SeriesMemory>& memory, const Json& profile, Json* entry) {
  auto shape = MessageJson(plan.shape());
  if (!shape.ok()) return shape.status();
  (*entry)["display_name"] = plan.shape().display_name();
  (*entry)["shape"] = *std::move(shape);
  if (!plan.delta_source().empty()) (*entry)["delta_source"] = plan.delta_source();
  if (plan.has_delta_calibration()) (*entry)["delta_calibration"] = DeltaCalibrationJson(plan.delta_calibration());
  Json peaks = Json::array();
  const SeriesEvidence* last = nullptr;
  for (std::size_t round = 0; round < parsed.evidence.size(); ++round) {
    for (const SeriesEvidence& evidence : parsed.evidence[round].series) {
      if (evidence.series != plan.series()) continue;
      peaks.push_back({{"round", round},
                       {"base_bytes", evidence.base_peak_bytes},
                       {"candidate_bytes", evidence.candidate_peak_bytes}});
      last = &evidence;
    }
  }
  (*entry)["peaks"] = std::move(peaks);
  if (const auto found = memory.find(plan.series()); found != memory.end()) {
    (*entry)["memory"] = {{"base_bytes", std::llround(found->second.base_bytes)},
                          {"candidate_bytes", std::llround(found->second.candidate_bytes)},
                          {"limit_bytes", std::llround(found->second.limit_bytes)},
                          {"met", found->second.met}};
  }
  if (last != nullptr) {
    (*entry)["dispatch"] = {{"base", DispatchJson(last->base_dispatch)},
                            {"candidate", DispatchJson(last->candidate_dispatch)}};
  }
  if (profile.is_object() && profile.contains(plan.series())) {
    const Json& measured = profile.at(plan.series());
    for (const char* part : {"ops", "kernels", "kernel_ns", "dram"}) {
      if (measured.contains(part)) (*entry)[part] = measured.at(part);  // An older server's profile lacks some.
    }
  }
  (*entry)["predicted_traffic"] = TrafficJson(plan.traffic());
  return absl::OkStatus();
}

absl::StatusOr<Json> SeriesJson(const Parsed& parsed, const verdict::Outcome& outcome, const Json& profile) {
  std::map<std::string, Json> measured;
  if (!parsed.samples.empty()) {
    const auto summaries = verdict::Summarize(parsed.samples, parsed.config, outcome);
    if (!summaries.ok()) return summaries.status();
    for (const auto& summary : *summaries) measured[summary.look.series] = verdict::SeriesToJson(summary);
  }
  const auto memory = JudgeMemory(parsed.plan, parsed.evidence);
  const auto cycles = CyclesJson(parsed.samples, parsed.evidence);
  Json list = Json::array();
  for (const auto& plan : parsed.plan.series()) {
    const auto found = measured.find(plan.series());
    Json entry = found != measured.end()
                     ? found->second
                     : Json{{"series", plan.series()}, {"role", plan.role()}, {"status", "no_look"}, {"n", 0}};
    if (auto status = AddToSeries(parsed, plan, memory, profile, &entry); !status.ok()) return status;
    if (const auto counted = cycles.find(plan.series()); counted != cycles.end()) entry["cycles"] = counted->second;
    list.push_back(std::move(entry));
  }
  return list;
}

// What the samples say, with the job's own word on how it ended.
absl::StatusOr<verdict::Outcome> OutcomeOf(const JobRecord& record, const Parsed& parsed) {
  verdict::Outcome outcome;
  if (!parsed.samples.empty()) {
    const verdict::Memory memory = MemoryVerdict(parsed.plan, JudgeMemory(parsed.plan, parsed.evidence));
    auto decided = verdict::Decide(parsed.samples, parsed.config, {.memory = memory});
    if (!decided.ok()) return decided.status();
    outcome = *std::move(decided);
  }
  const v1::BenchmarkJob& job = record.job;
  const bool by_samples = job.state() == v1::BenchmarkJob::DONE && job.verdict() == outcome.verdict;
  outcome.verdict = job.verdict();
  outcome.reason = job.reason();
  outcome.detail = job.detail();
  outcome.non_inferior = job.non_inferior();
  if (!by_samples) {
    outcome.rule = job.verdict() == "CONTRACT_FAILED" ? verdict::Rule::kContractFailed : verdict::Rule::kFailed;
    outcome.stop_look.reset();
  }
  return outcome;
}

Json BlocksJson(const Parsed& parsed) {
  Json list = Json::array();
  for (std::size_t round = 0; round < parsed.evidence.size(); ++round) {
    for (const Json& block : parsed.evidence[round].blocks) {
      Json entry = {{"round", round}};
      entry.update(block);
      list.push_back(std::move(entry));
    }
  }
  return list;
}

Json RoundsJson(const Parsed& parsed) {
  Json list = Json::array();
  for (std::size_t round = 0; round < parsed.evidence.size(); ++round) {
    list.push_back({{"round", round},
                    {"seconds", verdict::NumberToJson(parsed.evidence[round].seconds)},
                    {"device_seconds", verdict::NumberToJson(parsed.evidence[round].device_seconds)},
                    {"foreign_cpu_cores", std::isnan(parsed.evidence[round].foreign_cpu_cores)
                                              ? Json(nullptr)
                                              : verdict::NumberToJson(parsed.evidence[round].foreign_cpu_cores)}});
  }
  return list;
}

// One for each arm, series and path that wasn't the variant's own, in the order of the rounds.
std::vector<std::string> FallbackNotes(const Parsed& parsed) {
  std::vector<std::string> notes;
  for (const RoundEvidence& round : parsed.evidence) {
    for (const SeriesEvidence& evidence : round.series) {
      for (const auto& [arm, dispatch] :
           {std::pair("base", &evidence.base_dispatch), std::pair("candidate", &evidence.candidate_dispatch)}) {
        if (!dispatch->fallback) continue;
        std::string note = absl::StrCat("The ", arm, " (", dispatch->variant, ") did not take its own path in ",
                                        evidence.series, ": ", dispatch->path, "; ", dispatch->reason,
                                        ". With target.force_variant the job would have failed.");
        if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));
      }
    }
  }
  return notes;
}

std::vector<absl::string_view> Lines(const std::string& csv) { return absl::StrSplit(csv, '\n', absl::SkipEmpty()); }

Json ExcludedJson(const JobRecord& record) {
  Json list = Json::array();
  for (const StoredLoss& loss : record.losses) {
    const std::size_t rows = loss.samples.empty() ? 0 : Lines(loss.samples).size() - 1;
    list.push_back({{"phase", loss.phase},
                    {"round", loss.round < 0 ? Json(nullptr) : Json(loss.round)},
                    {"arm", loss.cause == "base" || loss.cause == "candidate" ? Json(loss.cause) : Json(nullptr)},
                    {"cause", loss.cause},
                    {"reason", loss.reason},
                    {"detail", loss.detail},
                    {"rows", rows}});
  }
  return list;
}

// The samples of lost attempts, which no verdict is computed from: two columns more than a samples file has.
std::string ExcludedCsv(const JobRecord& record) {
  std::string csv = absl::StrCat(verdict::kSamplesHeader, ",cause,reason\n");
  for (const StoredLoss& loss : record.losses) {
    if (loss.samples.empty()) continue;
    const std::vector<absl::string_view> lines = Lines(loss.samples);
    for (std::size_t i = 1; i < lines.size(); ++i) {
      absl::StrAppend(&csv, lines[i], ",", CsvWord(loss.cause), ",", CsvWord(loss.reason), "\n");
    }
  }
  return csv;
}

Json FileJson(const ReportFile& file) {
  return {{"name", file.name}, {"sha256", Sha256Hex(file.data)}, {"bytes", file.data.size()}};
}

absl::Status AddJob(const v1::BenchmarkJob& job, Json* report) {
  auto spec = MessageJson(job.spec());
  if (!spec.ok()) return spec.status();
  (*report)["failure_cause"] = job.failure_cause();
  (*report)["spec"] = *std::move(spec);
  (*report)["spec_digest"] = job.spec_digest();
  if (job.has_plan()) {
    auto plan = PlanJson(job);
    if (!plan.ok()) return plan.status();
    (*report)["plan"] = *std::move(plan);
  }
  (*report)["create_time_unix_ms"] = job.create_time_unix_ms();
  (*report)["start_time_unix_ms"] = job.start_time_unix_ms();
  (*report)["end_time_unix_ms"] = job.end_time_unix_ms();
  (*report)["restarts"] = job.restarts();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JobRecord> LoadJobRecord(JobStore* store, v1::BenchmarkJob job) {
  JobRecord record;
  const std::string name = job.name();
  record.job = std::move(job);
  auto rounds = store->Rounds(name);
  if (!rounds.ok()) return rounds.status();
  record.rounds = *std::move(rounds);
  auto losses = store->Losses(name);
  if (!losses.ok()) return losses.status();
  record.losses = *std::move(losses);
  const std::pair<const char*, std::string*> documents[] = {
      {"environment", &record.environment}, {"environment_after_restart", &record.environment_after_restart},
      {"contract", &record.contract},       {"profile", &record.profile},
      {"diagnostics", &record.diagnostics}, {"diagnostics.csv", &record.diagnostics_csv}};
  for (const auto& [document, text] : documents) {
    auto stored = store->Document(name, document);
    if (!stored.ok()) return stored.status();
    *text = *std::move(stored);
  }
  return record;
}

absl::StatusOr<std::vector<ReportFile>> BuildReport(const JobRecord& record) {
  auto parsed = Parse(record);
  if (!parsed.ok()) return parsed.status();
  auto outcome = OutcomeOf(record, *parsed);
  if (!outcome.ok()) return outcome.status();
  const auto profile = ParseDocument(record.profile);
  const auto contract = ParseDocument(record.contract);
  const auto diagnostics = ParseDocument(record.diagnostics);
  const auto surroundings = ParseDocument(record.environment);
  const auto later = ParseDocument(record.environment_after_restart);
  for (const auto* document : {&profile, &contract, &diagnostics, &surroundings, &later}) {
    if (!document->ok()) return document->status();
  }
  auto series = SeriesJson(*parsed, *outcome, *profile);
  if (!series.ok()) return series.status();

  Json report = {{"format", "keval.report.v1"},
                 {"name", record.job.name()},
                 {"display_name", record.job.spec().display_name()},
                 {"state", v1::BenchmarkJob::State_Name(record.job.state())}};
  report.update(verdict::OutcomeToJson(*outcome));
  if (record.job.state() == v1::BenchmarkJob::CANCELLED) report["rule"] = nullptr;
  report["config"] = verdict::ConfigToJson(parsed->config);
  report["series"] = *std::move(series);
  if (auto status = AddJob(record.job, &report); !status.ok()) return status;
  report["arms"] = ArmsJson(record.job.spec(), *surroundings);
  report["versions"] = VersionsJson(*surroundings);
  if (surroundings->is_object()) report["environment"] = surroundings->at("environment");
  if (later->is_object()) report["environment_after_restart"] = later->at("environment");
  report["timed_region"] = TimedRegionJson(record.job.spec(), *surroundings);
  report["rounds"] = RoundsJson(*parsed);
  report["time"] = TimeJson(*parsed, record.job.spec());
  report["blocks"] = BlocksJson(*parsed);
  if (!contract->is_null()) report["contract"] = *contract;
  report["excluded"] = ExcludedJson(record);
  report["diagnostics"] = diagnostics->is_null() ? Json::array() : *diagnostics;
  report["noise"] = NoiseJson(parsed->evidence);
  report["notes"] = NotesJson(record);
  for (std::string& note : NoiseNotes(parsed->evidence, record.job.spec().target().device() == "cpu")) {
    report["notes"].push_back(std::move(note));
  }
  for (std::string& note : FallbackNotes(*parsed)) report["notes"].push_back(std::move(note));

  std::vector<ReportFile> files(4);
  files[1] = {"samples.csv", std::move(parsed->samples_csv)};
  files[2] = {"diagnostics.csv", record.diagnostics_csv.empty() ? DiagnosticsCsv({}) : record.diagnostics_csv};
  files[3] = {"excluded.csv", ExcludedCsv(record)};
  report["files"] = {FileJson(files[1]), FileJson(files[2]), FileJson(files[3])};
  report["recompute"] = "keval verdict samples.csv --config report.json";
  files[0] = {"report.json", JsonText(report)};
  return files;
}

}  // namespace keval::server
