#include "server/report_text.h"

#include <cstdint>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/number.h"
#include "server/job_environment.h"
#include "server/job_plan.h"

namespace keval::server {
namespace {

// "52428800 bytes of L2" is 52428800; a text that begins otherwise is 0.
std::int64_t LeadingNumber(absl::string_view text) { return ParseInt64(text.substr(0, text.find(' '))).value_or(0); }

bool IsCpu(const v1::BenchmarkSpec& spec) { return spec.target().device() == "cpu"; }

bool Mentions(const v1::BenchmarkSpec& spec, absl::string_view variant) {
  return spec.base().variant() == std::string(variant) || spec.candidate().variant() == std::string(variant);
}

}  // namespace

Json ArmsJson(const v1::BenchmarkSpec& spec, const Json& surroundings) {
  const std::string hash = Fact(surroundings, "environment", "worker_sha256");
  const auto arm = [&](const std::string& variant) {
    return Json{{"variant", variant}, {"display_name", variant}, {"sha256", hash.empty() ? Json(nullptr) : Json(hash)}};
  };
  return {{"base", arm(spec.base().variant())}, {"candidate", arm(spec.candidate().variant())}};
}

Json VersionsJson(const Json& surroundings) {
  Json versions = {{"keval", Fact(surroundings, "build", "version")},
                   {"commit", Fact(surroundings, "build", "commit")},
                   {"build_type", Fact(surroundings, "build", "build_type")},
                   {"build_flags", Fact(surroundings, "environment", "build_flags")},
                   {"compiler", Fact(surroundings, "build", "compiler")},
                   {"libtorch", Fact(surroundings, "build", "torch_version")},
                   {"cuda", Fact(surroundings, "environment", "cuda_runtime")},
                   {"driver", Fact(surroundings, "environment", "driver_version")},
                   {"procedure", kProcedureVersion}};
  for (auto entry = versions.begin(); entry != versions.end();) {
    entry = entry->get<std::string>().empty() ? versions.erase(entry) : std::next(entry);
  }
  return versions;
}

Json TimedRegionJson(const v1::BenchmarkSpec& spec, const Json& surroundings) {
  const bool cpu = IsCpu(spec);
  const std::string told = Fact(surroundings, "environment", "timed_region");
  const std::string timer = Fact(surroundings, "environment", "timer");
  const std::string flush = Fact(surroundings, "environment", "cache_overwrite");
  return {{"includes", told.empty() ? "one forward and backward call of the operator with all its gradients" : told},
          {"excludes",
           "making inputs, overwriting the cache, discarded repetitions, checking results, starting processes, RPC"},
          {"timer", !timer.empty() ? timer
                    : cpu          ? "the host's steady clock"
                                   : "device events on the arm's own stream"},
          {"flush", flush.empty() ? (cpu ? "none on a CPU" : "not told") : flush},
          {"flush_bytes", LeadingNumber(flush)},
          {"inputs", "fresh values each round from the job's seed, the same for every arm"}};
}

Json NotesJson(const JobRecord& record) {
  const v1::BenchmarkJob& job = record.job;
  Json notes = Json::array();
  if (job.spec().has_calibration()) {
    const double effect = job.spec().calibration().effect();
    notes.push_back(absl::StrCat(
        "A calibration of the procedure: both arms run ", job.spec().base().variant(), ", ",
        effect == 0 ? std::string("and nothing was injected")
                    : absl::StrCat("and a delay makes the effect ", DoubleText(effect), " in ln units by construction"),
        ". The verdict says nothing of a candidate; the contract was not checked."));
  }
  for (const auto& series : job.plan().series()) {
    if (!series.has_delta_calibration()) continue;
    const auto& from = series.delta_calibration();
    notes.push_back(
        absl::StrCat("The margin of ", series.series(), ", ", DoubleText(series.delta()), " in ln units, comes from ",
                     from.rounds(), " A/A rounds on ", from.device(), from.uuid().empty() ? "" : " ", from.uuid(),
                     from.origin() == "spec" ? absl::StrCat(", by the calibration ", from.sha256(), ".")
                                             : std::string(", by A/A jobs that ran on this server before.")));
  }
  for (const std::string& unused : job.plan().unused_calibrations()) notes.push_back(unused);
  if (IsCpu(job.spec())) {
    notes.push_back(absl::StrCat("On a CPU there is no cache overwrite between repetitions; each worker computes on ",
                                 job.spec().procedure().worker_threads(),
                                 " thread(s) with the C library's allocator at its defaults."));
  } else if (!Mentions(job.spec(), "sweep")) {
    notes.push_back(
        "A control of `sweep` against its own copy is absent: the only control is base against a copy of base.");
  }
  if (job.spec().procedure().process_mode() == v1::PROCESS_MODE_SEQUENTIAL) {
    notes.push_back(
        "process_mode sequential, a weaker procedure: each arm made its tensors anew for every block and let go of "
        "them after it, so that a quad took longer and drift cancels less well; an arm's memory layout is drawn anew "
        "in each block instead of once a round. Compare with results of the same mode only.");
  }
  if (job.restarts() > 0) {
    notes.push_back(absl::StrCat("The server was restarted ", job.restarts(),
                                 " time(s) under this job, which went on from its last finished round."));
  }
  if (const std::string changed = ChangedFacts(record.environment, record.environment_after_restart);
      !changed.empty()) {
    notes.push_back(absl::StrCat("After the last restart the surroundings differed in: ", changed, "."));
  }
  if (!record.losses.empty()) {
    notes.push_back(absl::StrCat(
        record.losses.size(), " attempt(s) were lost and are listed under `excluded`; their samples decide nothing."));
  }
  notes.push_back(
      "`predicted_traffic` is a static model of the weight-gradient table, in logical bytes; it is not a measurement.");
  return notes;
}

std::string CsvWord(absl::string_view text) {
  const bool plain = text.find_first_of(",\"\r\n") == absl::string_view::npos;
  return plain ? std::string(text) : absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

}  // namespace keval::server
