// What commands print of a job, and how its end becomes an exit code.
#ifndef KEVAL_CLIENT_CLI_JOB_OUTPUT_H_
#define KEVAL_CLIENT_CLI_JOB_OUTPUT_H_

#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/cli/session.h"
#include "core/verdict/require.h"
#include "keval/v1/benchmark.pb.h"

namespace keval::cli {

// "jobs/ID" from that or from the bare ID.
std::string JobName(absl::string_view text);

// {"name", "state", "verdict", "reason"}.
nlohmann::ordered_json JobToJson(const v1::BenchmarkJob& job);

// What the server answers to validate_only: {"spec_digest", "rounds_planned", "plan"}; as lines for a person without
// --json.
absl::Status PrintPlan(const Session& session, const v1::BenchmarkJob& job);

// The job as that document with --json, else as a few lines for a person.
absl::Status PrintJob(const Session& session, const v1::BenchmarkJob& job);

// 7 for a cancelled job; for a finished one what verdict::ExitCode says; REQUIRES that it has ended.
int JobExitCode(const v1::BenchmarkJob& job, verdict::Require require);

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_JOB_OUTPUT_H_
