#include "client/cli/job_output.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/number.h"
#include "base/text.h"
#include "client/cli/exit_code.h"
#include "client/cli/proto_json.h"

namespace keval::cli {

std::string JobName(absl::string_view text) {
  return absl::StartsWith(text, "jobs/") ? std::string(text) : absl::StrCat("jobs/", text);
}

nlohmann::ordered_json JobToJson(const v1::BenchmarkJob& job) {
  return {{"name", job.name()},
          {"state", v1::BenchmarkJob::State_Name(job.state())},
          {"verdict", job.verdict()},
          {"reason", job.reason()}};
}

absl::Status PrintJob(const Session& session, const v1::BenchmarkJob& job) {
  if (session.json) return PrintJson(session, JobToJson(job));
  std::string text = absl::StrCat(PrintableText(job.name()), " ", v1::BenchmarkJob::State_Name(job.state()));
  if (job.state() == v1::BenchmarkJob::RUNNING) {
    absl::StrAppend(&text, " (", job.rounds_done(), " of at most ", job.rounds_planned(), " rounds)");
  }
  if (!job.spec().display_name().empty()) absl::StrAppend(&text, " \"", PrintableText(job.spec().display_name()), "\"");
  text += "\n";
  if (!job.verdict().empty()) {
    absl::StrAppend(&text, PrintableText(job.verdict()));
    if (!job.reason().empty()) absl::StrAppend(&text, " (", PrintableText(job.reason()), ")");
    text += "\n";
  }
  if (!job.detail().empty()) absl::StrAppend(&text, PrintableText(job.detail()), "\n");
  return PrintText(text);
}

absl::Status PrintPlan(const Session& session, const v1::BenchmarkJob& job) {
  if (session.json) {
    return PrintJson(session, {{"spec_digest", job.spec_digest()},
                               {"rounds_planned", job.rounds_planned()},
                               {"plan", ProtoToJson(job.plan())}});
  }
  std::string text = absl::StrCat("the spec is valid, SHA-256 ", PrintableText(job.spec_digest(), 128), "; at most ",
                                  job.rounds_planned(), " rounds, procedure ",
                                  PrintableText(job.plan().procedure_version(), 128), "\n");
  for (const auto& series : job.plan().series()) {
    absl::StrAppend(&text, "  ", PrintableText(series.role(), 64), "  ", PrintableText(series.series(), 256));
    if (series.delta() > 0) {
      absl::StrAppend(&text, "  margin ", DoubleText(series.delta()), " (", PrintableText(series.delta_source(), 256));
      if (series.has_delta_calibration()) {
        absl::StrAppend(&text, " of ", series.delta_calibration().rounds(), " rounds, ",
                        PrintableText(series.delta_calibration().origin(), 64));
      }
      text += ")";
    }
    absl::StrAppend(&text, "  ", series.quads(), " quads of ", series.discarded_repetitions(), " + ",
                    series.timed_repetitions(), " repetitions, ", series.traffic().chunks(), " chunks\n");
  }
  for (const std::string& unused : job.plan().unused_calibrations()) {
    absl::StrAppend(&text, PrintableText(unused, 1024), "\n");
  }
  return PrintText(text);
}

int JobExitCode(const v1::BenchmarkJob& job, verdict::Require require) {
  if (job.state() == v1::BenchmarkJob::CANCELLED) return kCancelled;
  return verdict::ExitCode(job.verdict(), job.reason(), job.failure_cause(), job.non_inferior(), require);
}

}  // namespace keval::cli
