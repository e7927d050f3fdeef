// keval submit, get, cancel, list: the commands that answer with jobs.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "client/cli/flags.h"
#include "client/cli/job_output.h"
#include "client/cli/margin_calibration.h"

namespace keval::cli {
namespace {

struct SubmitFlags {
  std::string spec;
  std::vector<std::string> calibrations;
  std::string request_id;
  bool validate_only = false;
};

int Answer(const Session& session, const absl::StatusOr<v1::BenchmarkJob>& job) {
  if (!job.ok()) return Complain(job.status(), session.json);
  const auto status = PrintJob(session, *job);
  return status.ok() ? kDone : Complain(status, session.json);
}

int Submit(const Session& session, const SubmitFlags& flags) {
  const auto spec = ReadSpecWithCalibrations(flags.spec, flags.calibrations);
  if (!spec.ok()) return Complain(spec.status(), session.json);
  const auto client = session.Connect();
  if (!client.ok()) return Complain(client.status(), session.json);
  v1::CreateJobRequest request;
  *request.mutable_spec() = *spec;
  request.set_request_id(flags.request_id);
  request.set_validate_only(flags.validate_only);
  const auto job = client->CreateJob(std::move(request), session.Options());
  if (!flags.validate_only || !job.ok()) return Answer(session, job);
  const auto status = PrintPlan(session, *job);
  return status.ok() ? kDone : Complain(status, session.json);
}

int Get(const Session& session, const std::string& name) {
  const auto client = session.Connect();
  if (!client.ok()) return Complain(client.status(), session.json);
  return Answer(session, client->GetJob(JobName(name), session.Options()));
}

int Cancel(const Session& session, const std::string& name) {
  const auto client = session.Connect();
  if (!client.ok()) return Complain(client.status(), session.json);
  return Answer(session, client->CancelJob(JobName(name), session.Options()));
}

int List(const Session& session, std::int64_t limit) {
  const auto client = session.Connect();
  if (!client.ok()) return Complain(client.status(), session.json);
  const auto jobs = client->ListJobs({.limit = limit, .spec_digest = ""}, session.Options());
  if (!jobs.ok()) return Complain(jobs.status(), session.json);
  absl::Status status;
  if (session.json) {
    nlohmann::ordered_json document = {{"jobs", nlohmann::ordered_json::array()}};
    for (const v1::BenchmarkJob& job : *jobs) document["jobs"].push_back(JobToJson(job));
    status = PrintJson(session, document);
  } else {
    std::string text;
    for (const v1::BenchmarkJob& job : *jobs) {
      absl::StrAppend(&text, PrintableText(job.name()), "  ", v1::BenchmarkJob::State_Name(job.state()), "  ",
                      PrintableText(job.verdict()), job.reason().empty() ? "" : "/", PrintableText(job.reason()), "  ",
                      PrintableText(job.spec().display_name()), "\n");
    }
    status = PrintText(text);
  }
  return status.ok() ? kDone : Complain(status, session.json);
}

// A command with one argument, a job.
void AddOnJob(CLI::App* app, const std::string& name, const std::string& help, Action* action,
              int (*run)(const Session&, const std::string&)) {
  CLI::App* const command = app->add_subcommand(name, help);
  const auto job = std::make_shared<std::string>();
  command->add_option("JOB", *job, "jobs/ID or ID")->required();
  command->callback([=] { *action = [=](Session& session) { return run(session, *job); }; });
}

}  // namespace

void AddJobCommands(CLI::App* app, Action* action) {
  CLI::App* const submit = app->add_subcommand("submit", "submit a spec and return at once");
  const auto flags = std::make_shared<SubmitFlags>();
  submit->add_option("SPEC", flags->spec, "YAML or JSON file")->required();
  AddCalibrations(submit, &flags->calibrations);
  submit->add_option("--request_id", flags->request_id, "the same id with the same spec is the same job");
  submit->add_flag("--validate_only", flags->validate_only,
                   "check the spec against the server, show its plan, and make no job");
  submit->callback([=] { *action = [flags](Session& session) { return Submit(session, *flags); }; });

  AddOnJob(app, "get", "show a job", action, &Get);
  AddOnJob(app, "cancel", "end a queued or running job", action, &Cancel);

  CLI::App* const list = app->add_subcommand("list", "show your jobs, the newest first");
  const auto limit = std::make_shared<std::int64_t>(0);
  AddInt64(list, "--limit", limit.get(), "at most so many; 0, the default: all");
  list->callback([=] { *action = [limit](Session& session) { return List(session, *limit); }; });
}

}  // namespace keval::cli
