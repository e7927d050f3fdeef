// keval watch JOB: follow a job to its end.
#include <memory>
#include <string>

#include "client/cli/commands.h"
#include "client/cli/flags.h"
#include "client/cli/follow.h"
#include "client/cli/job_output.h"

namespace keval::cli {
namespace {

struct WatchFlags {
  std::string job;
  verdict::Require require = verdict::Require::kImproved;
};

int Watch(const Session& session, const WatchFlags& flags) {
  const auto client = session.Connect();
  if (!client.ok()) return Complain(client.status(), session.json);
  const auto job = FollowJob(session, *client, JobName(flags.job));
  if (!job.ok()) return Complain(job.status(), session.json);
  if (const auto status = PrintJob(session, *job); !status.ok()) return Complain(status, session.json);
  return JobExitCode(*job, flags.require);
}

}  // namespace

void AddWatch(CLI::App* app, Action* action) {
  CLI::App* const command = app->add_subcommand("watch", "follow a job to its end; interrupting leaves it running");
  const auto flags = std::make_shared<WatchFlags>();
  command->add_option("JOB", flags->job, "jobs/ID or ID")->required();
  AddRequire(command, &flags->require, "improved");
  command->callback([=] { *action = [flags](Session& session) { return Watch(session, *flags); }; });
}

}  // namespace keval::cli
