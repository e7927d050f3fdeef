// keval run SPEC: submit, follow, report, and gate by exit code.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/sha256.h"
#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "client/cli/flags.h"
#include "client/cli/follow.h"
#include "client/cli/job_output.h"
#include "client/cli/margin_calibration.h"
#include "client/cli/report_dir.h"

namespace keval::cli {
namespace {

struct RunFlags {
  std::string spec;
  std::vector<std::string> calibrations;
  std::string report_dir;
  std::string request_id;
  verdict::Require require = verdict::Require::kImproved;
};

// How long an interrupted run waits to learn whether it made a job.
constexpr absl::Duration kFindOutTimeout = absl::Seconds(5);

// The user's interrupt ends the job too, which nobody would look at any more.
int CancelOnInterrupt(const Session& session, const Client& client, const std::string& name) {
  const auto job = client.CancelJob(name);  // Without the session's cancel source, which has fired.
  if (!job.ok()) return Complain(job.status(), session.json);
  if (const auto status = PrintJob(session, *job); !status.ok()) return Complain(status, session.json);
  return kCancelled;
}

// The interrupt came while the job was being made. Asking once more with the same request id names the job, whether or
// not the first request arrived.
int CancelUnanswered(const Session& session, const Client& client, const v1::CreateJobRequest& request) {
  const auto created = client.CreateJob(request, {.timeout = kFindOutTimeout});
  if (created.ok()) return CancelOnInterrupt(session, client, created->name());
  const int refused = Complain(created.status(), session.json);
  if (refused != kUsage) Note("interrupted while the job was being made; it may be queued: see keval list");
  return kCancelled;
}

// Fetches the report, says in `summary` what a person wants to read of it, and writes it where it is wanted.
absl::Status UseReport(const Session& session, const Client& client, const RunFlags& flags, const std::string& name,
                       std::string* summary) {
  const auto files = client.GetReport(name, {}, session.Options());
  if (!files.ok()) return files.status();
  if (!session.json) {
    const auto text = ReportText(*files);
    if (!text.ok()) return text.status();
    auto lines = ReportLines(*text);
    if (!lines.ok()) return lines.status();
    *summary = *std::move(lines);
  }
  if (flags.report_dir.empty()) return absl::OkStatus();
  if (auto status = WriteReport(flags.report_dir, *files); !status.ok()) return status;
  Note("report written to " + flags.report_dir);
  return absl::OkStatus();
}

int Run(const Session& session, const RunFlags& flags) {
  const auto spec = ReadSpecWithCalibrations(flags.spec, flags.calibrations);
  if (!spec.ok()) return Complain(spec.status(), session.json);
  if (!flags.report_dir.empty()) {
    if (const auto status = PrepareReportDir(flags.report_dir); !status.ok()) return Complain(status, session.json);
  }
  const auto client = session.Connect();
  if (!client.ok()) return Complain(client.status(), session.json);
  v1::CreateJobRequest request;
  *request.mutable_spec() = *spec;
  request.set_request_id(flags.request_id.empty() ? RandomHex128() : flags.request_id);
  const auto created = client->CreateJob(request, session.Options());
  if (absl::IsCancelled(created.status()) && session.cancel->cancelled()) {
    return CancelUnanswered(session, *client, request);
  }
  if (!created.ok()) return Complain(created.status(), session.json);

  const auto job = FollowJob(session, *client, created->name());
  if (absl::IsCancelled(job.status()) && session.cancel->cancelled()) {
    return CancelOnInterrupt(session, *client, created->name());
  }
  if (!job.ok()) return Complain(job.status(), session.json);
  std::string summary;
  absl::Status reported;
  if (job->state() == v1::BenchmarkJob::DONE) reported = UseReport(session, *client, flags, job->name(), &summary);
  auto printed = summary.empty() ? absl::OkStatus() : PrintText(summary);
  if (printed.ok()) printed = PrintJob(session, *job);
  if (!printed.ok()) return Complain(printed, session.json);
  const int gate = JobExitCode(*job, flags.require);
  if (reported.ok()) return gate;
  // The job has its verdict whether or not the report arrived: a gate that isn't met keeps its own code.
  const int failed = Complain(reported, session.json);
  return gate == kDone ? failed : gate;
}

}  // namespace

void AddRun(CLI::App* app, Action* action) {
  CLI::App* const command = app->add_subcommand("run", "submit a spec, follow the job, and gate on its verdict");
  const auto flags = std::make_shared<RunFlags>();
  command->add_option("SPEC", flags->spec, "YAML or JSON file")->required();
  AddCalibrations(command, &flags->calibrations);
  command->add_option("--report_dir", flags->report_dir,
                      "folder for report.json, report.html, report.md, junit.xml and samples");
  command->add_option("--request_id", flags->request_id, "the same id with the same spec is the same job");
  AddRequire(command, &flags->require, "improved");
  command->callback([=] { *action = [flags](Session& session) { return Run(session, *flags); }; });
}

}  // namespace keval::cli
