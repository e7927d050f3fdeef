// What a job's times were measured on, and whether it is still the same after a restart.
#ifndef KEVAL_SERVER_JOB_ENVIRONMENT_H_
#define KEVAL_SERVER_JOB_ENVIRONMENT_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "keval/v1/server_info.pb.h"
#include "server/job_evidence.h"

namespace keval::server {

// {"environment": what the worker told, "build": the server's}, as the store keeps it.
Json EnvironmentJson(const std::map<std::string, std::string>& facts, const v1::BuildInfo& build);

// The text of `key` in `part` ("environment" or "build"); "" where nothing was told.
std::string Fact(const Json& surroundings, const char* part, const char* key);

// Names of the facts that make times of `before` and `after` (texts of EnvironmentJson) incomparable, separated by
// commas: device, driver, libraries, builds, settings. Load, clocks, power and temperature are not among them. Empty
// where all are the same, or one of the two tells nothing.
std::string ChangedFacts(absl::string_view before, absl::string_view after);

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_ENVIRONMENT_H_
