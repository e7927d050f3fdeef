// keval history SPEC: past jobs of a spec, and whether their figures compare.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "client/cli/flags.h"
#include "client/cli/job_history.h"
#include "client/cli/margin_calibration.h"
#include "proto/job_state.h"

namespace keval::cli {
namespace {

constexpr char kReportJson[] = "report.json";

struct HistoryFlags {
  std::string spec;
  std::vector<std::string> calibrations;
  std::int64_t limit = 20;
  bool across_fingerprints = false;
};

// The server's digest of a spec: defaults are its own to fill in.
absl::StatusOr<std::string> DigestOf(const Session& session, const Client& client, const HistoryFlags& flags) {
  const auto spec = ReadSpecWithCalibrations(flags.spec, flags.calibrations);
  if (!spec.ok()) return spec.status();
  v1::CreateJobRequest request;
  *request.mutable_spec() = *spec;
  request.set_validate_only(true);
  const auto job = client.CreateJob(std::move(request), session.Options());
  if (!job.ok()) return job.status();
  return job->spec_digest();
}

absl::StatusOr<PastJob> Load(const Session& session, const Client& client, const v1::BenchmarkJob& job) {
  if (!HasEnded(job.state())) return PastJob{.job = job};
  const auto files = client.GetReport(job.name(), {kReportJson}, session.Options());
  if (!files.ok()) return files.status();
  if (files->size() != 1) return absl::DataLossError("the server's report has no report.json");
  const auto report = nlohmann::json::parse(files->front().contents, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object()) return absl::DataLossError("the server's report.json is no JSON object");
  return ReadPastJob(job, report);
}

int History(const Session& session, const HistoryFlags& flags) {
  const auto client = session.Connect();
  if (!client.ok()) return Complain(client.status(), session.json);
  const auto digest = DigestOf(session, *client, flags);
  if (!digest.ok()) return Complain(digest.status(), session.json);
  const auto jobs = client->ListJobs({.limit = flags.limit, .spec_digest = *digest}, session.Options());
  if (!jobs.ok()) return Complain(jobs.status(), session.json);
  std::vector<PastJob> past;
  for (const v1::BenchmarkJob& job : *jobs) {
    auto loaded = Load(session, *client, job);
    if (!loaded.ok()) return Complain(loaded.status(), session.json);
    past.push_back(*std::move(loaded));
  }
  if (!flags.across_fingerprints) {
    if (const auto status = CheckComparable(past); !status.ok()) return Complain(status, session.json);
  }
  const auto status = session.json ? PrintJson(session, HistoryToJson(*digest, past)) : PrintText(HistoryText(past));
  return status.ok() ? kDone : Complain(status, session.json);
}

}  // namespace

void AddHistory(CLI::App* app, Action* action) {
  CLI::App* const command = app->add_subcommand("history", "show your past jobs of a spec, the newest first");
  const auto flags = std::make_shared<HistoryFlags>();
  command->add_option("SPEC", flags->spec, "YAML or JSON file")->required();
  AddCalibrations(command, &flags->calibrations);
  AddInt64(command, "--limit", &flags->limit, "at most so many; 0: all; default 20");
  command->add_flag("--across-fingerprints,--across_fingerprints", flags->across_fingerprints,
                    "also where they ran on different devices, drivers or builds");
  command->callback([=] { *action = [flags](Session& session) { return History(session, *flags); }; });
}

}  // namespace keval::cli
