#include "client/cli/follow.h"

#include "client/cli/progress.h"

namespace keval::cli {

absl::StatusOr<v1::BenchmarkJob> FollowJob(const Session& session, const Client& client, const std::string& name,
                                           const std::function<void(const v1::JobEvent&)>& on_event) {
  WatchParams params;
  params.name = name;
  const bool terminal = IsTerminal();
  params.progress = terminal;
  Progress progress(session, terminal);
  const auto status = client.WatchJob(
      params,
      [&](const v1::JobEvent& event) {
        progress.Show(event);
        on_event(event);
      },
      session.Options());
  if (!status.ok()) return status;
  if (!progress.status().ok()) return progress.status();
  return client.GetJob(name, session.Options());
}

}  // namespace keval::cli
