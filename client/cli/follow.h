// Following a job to its end: what `run` and `watch` share.
#ifndef KEVAL_CLIENT_CLI_FOLLOW_H_
#define KEVAL_CLIENT_CLI_FOLLOW_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/session.h"
#include "keval/client.h"
#include "keval/v1/benchmark.pb.h"

namespace keval::cli {

// Shows the job's events until it ends, and hands each to `on_event`; returns it as it ended. CANCELLED where the
// session was cancelled.
absl::StatusOr<v1::BenchmarkJob> FollowJob(
    const Session& session, const Client& client, const std::string& name,
    const std::function<void(const v1::JobEvent&)>& on_event = [](const v1::JobEvent&) {});

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_FOLLOW_H_
