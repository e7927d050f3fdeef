#include "client/cli/job_history.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/field_error.h"
#include "base/text.h"
#include "client/cli/job_output.h"
#include "core/verdict/explanation.h"

namespace keval::cli {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// Facts of a report's environment; others (load, free memory) change from hour to hour.
constexpr const char* kFacts[] = {"device",
                                  "cpu_model",
                                  "cpu_governor",
                                  "gpu_model",
                                  "gpu_uuid",
                                  "gpu_power_limit",
                                  "driver_version",
                                  "cuda_driver",
                                  "cuda_runtime",
                                  "libtorch_version",
                                  "libtorch_cpu_capability",
                                  "tf32",
                                  "reduced_precision_float16",
                                  "reduced_precision_bfloat16",
                                  "deterministic_algorithms",
                                  "cublas_workspace",
                                  "worker_sha256",
                                  "compiler",
                                  "build_flags",
                                  "operating_system",
                                  "c_library",
                                  "allocator",
                                  "worker_threads"};

const Json* Find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string TextOf(const Json& object, const char* key) {
  const Json* const value = Find(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

std::optional<double> NumberOf(const Json& object, const char* key) {
  const Json* const value = Find(object, key);
  return value != nullptr && value->is_number() ? std::optional(value->get<double>()) : std::nullopt;
}

std::string ChangesText(const std::vector<FactChange>& changes) {
  std::string text;
  for (const FactChange& change : changes) {
    const auto shown = [](const std::string& fact) { return fact.empty() ? "(not told)" : PrintableText(fact, 80); };
    absl::StrAppend(&text, text.empty() ? "" : "; ", change.fact, " ", shown(change.before), " -> ",
                    shown(change.after));
  }
  return text;
}

OrderedJson NumberOrNull(const std::optional<double>& value) { return value ? OrderedJson(*value) : OrderedJson(); }

// Every fingerprint once, in the order of the jobs.
std::vector<Fingerprint> Fingerprints(const std::vector<PastJob>& jobs) {
  std::vector<Fingerprint> all;
  for (const PastJob& job : jobs) {
    if (!job.fingerprint || std::find(all.begin(), all.end(), *job.fingerprint) != all.end()) continue;
    all.push_back(*job.fingerprint);
  }
  return all;
}

OrderedJson SeriesToJson(const PastSeries& series) {
  return {{"series", series.series},          {"role", series.role},         {"status", series.status},
          {"rounds", series.rounds},          {"L", NumberOrNull(series.L)}, {"sup_lo", NumberOrNull(series.lo)},
          {"sup_hi", NumberOrNull(series.hi)}};
}

std::string SeriesText(const PastSeries& series) {
  std::string text = absl::StrCat("    ", PrintableText(series.series, 128), "  ", PrintableText(series.role, 16));
  if (series.L) {
    absl::StrAppend(&text, "  ", verdict::GainPercentText(*series.L));
    if (series.lo && series.hi) {
      absl::StrAppend(&text, " [", verdict::GainPercentText(*series.lo), ", ", verdict::GainPercentText(*series.hi),
                      "]");
    }
    absl::StrAppend(&text, "  ", series.rounds, " rounds");
  }
  return absl::StrCat(text, "  ", PrintableText(series.status, 32), "\n");
}

}  // namespace

PastJob ReadPastJob(const v1::BenchmarkJob& job, const Json& report) {
  PastJob past{.job = job};
  if (const Json* const environment = Find(report, "environment"); environment != nullptr) {
    Fingerprint facts;
    for (const char* name : kFacts) {
      if (std::string text = TextOf(*environment, name); !text.empty()) facts[name] = std::move(text);
    }
    // "not locked: why"; why may change while the clock doesn't.
    if (std::string lock = TextOf(*environment, "gpu_clock_lock"); !lock.empty()) {
      facts["gpu_clock_lock"] = lock.substr(0, lock.find(':'));
    }
    if (const Json* const versions = Find(report, "versions"); versions != nullptr) {
      if (std::string procedure = TextOf(*versions, "procedure"); !procedure.empty()) {
        facts["procedure"] = std::move(procedure);
      }
    }
    past.fingerprint = std::move(facts);
  }
  const Json* const list = Find(report, "series");
  if (list == nullptr || !list->is_array()) return past;
  for (const Json& one : *list) {
    past.series.push_back({.series = TextOf(one, "series"),
                           .role = TextOf(one, "role"),
                           .status = TextOf(one, "status"),
                           .L = NumberOf(one, "L"),
                           .lo = NumberOf(one, "sup_lo"),
                           .hi = NumberOf(one, "sup_hi"),
                           .rounds = static_cast<int>(NumberOf(one, "n").value_or(0))});
  }
  return past;
}

std::vector<FactChange> Changes(const Fingerprint& before, const Fingerprint& after) {
  std::set<std::string> names;
  for (const auto& [name, text] : before) names.insert(name);
  for (const auto& [name, text] : after) names.insert(name);
  const auto told = [](const Fingerprint& of, const std::string& name) {
    const auto found = of.find(name);
    return found == of.end() ? std::string() : found->second;
  };
  std::vector<FactChange> changes;
  for (const std::string& name : names) {
    FactChange change{name, told(before, name), told(after, name)};
    if (change.before != change.after) changes.push_back(std::move(change));
  }
  return changes;
}

absl::Status CheckComparable(const std::vector<PastJob>& jobs) {
  const PastJob* newest = nullptr;
  int others = 0;
  std::string first;
  for (const PastJob& job : jobs) {
    if (!job.fingerprint) continue;
    if (newest == nullptr) newest = &job;
    if (*job.fingerprint == *newest->fingerprint) continue;
    ++others;
    if (!first.empty()) continue;
    first = absl::StrCat(PrintableText(job.job.name(), 64), " to ", PrintableText(newest->job.name(), 64), ": ",
                         ChangesText(Changes(*job.fingerprint, *newest->fingerprint)));
  }
  if (others == 0) return absl::OkStatus();
  return WithField(absl::FailedPreconditionError(absl::StrCat(
                       "fingerprint: ", others,
                       " of the jobs ran on something else than the newest, and their figures don't compare. From ",
                       first, ". Say --across-fingerprints to see them beside each other")),
                   {"fingerprint", first, "the same for every job"});
}

OrderedJson HistoryToJson(absl::string_view spec_digest, const std::vector<PastJob>& jobs) {
  const std::vector<Fingerprint> fingerprints = Fingerprints(jobs);
  OrderedJson document = {{"spec_digest", std::string(spec_digest)},
                          {"fingerprints", OrderedJson::array()},
                          {"jobs", OrderedJson::array()}};
  for (const Fingerprint& fingerprint : fingerprints) {
    OrderedJson entry = {{"facts", fingerprint}, {"changed", OrderedJson::array()}};
    for (const FactChange& change : Changes(fingerprint, fingerprints.front())) {
      entry["changed"].push_back({{"fact", change.fact}, {"then", change.before}, {"newest", change.after}});
    }
    document["fingerprints"].push_back(std::move(entry));
  }
  for (const PastJob& job : jobs) {
    OrderedJson entry = JobToJson(job.job);
    entry["create_time_unix_ms"] = job.job.create_time_unix_ms();
    entry["rounds_done"] = job.job.rounds_done();
    entry["fingerprint"] = nullptr;
    if (job.fingerprint) {
      const auto at = std::find(fingerprints.begin(), fingerprints.end(), *job.fingerprint);
      entry["fingerprint"] = at - fingerprints.begin();
    }
    entry["series"] = OrderedJson::array();
    for (const PastSeries& series : job.series) entry["series"].push_back(SeriesToJson(series));
    document["jobs"].push_back(std::move(entry));
  }
  return document;
}

std::string HistoryText(const std::vector<PastJob>& jobs) {
  if (jobs.empty()) return "no job of this spec yet\n";
  std::string text;
  const Fingerprint* newer = nullptr;
  for (const PastJob& job : jobs) {
    if (job.fingerprint) {
      if (newer != nullptr && *newer != *job.fingerprint) {
        absl::StrAppend(&text, "-- not comparable with what is above: ", ChangesText(Changes(*job.fingerprint, *newer)),
                        "\n");
      }
      newer = &*job.fingerprint;
    }
    const absl::Time created = absl::FromUnixMillis(job.job.create_time_unix_ms());
    absl::StrAppend(&text, absl::FormatTime("%Y-%m-%d %H:%M:%SZ", created, absl::UTCTimeZone()), "  ",
                    PrintableText(job.job.name(), 64), "  ", v1::BenchmarkJob::State_Name(job.job.state()));
    if (!job.job.verdict().empty()) absl::StrAppend(&text, "  ", PrintableText(job.job.verdict(), 64));
    if (!job.job.reason().empty()) absl::StrAppend(&text, " (", PrintableText(job.job.reason(), 64), ")");
    text += "\n";
    for (const PastSeries& series : job.series) text += SeriesText(series);
  }
  return text;
}

}  // namespace keval::cli
