// What is wrong with a command line, as a status that names the flag.
#ifndef KEVAL_CLIENT_CLI_USAGE_ERROR_H_
#define KEVAL_CLIENT_CLI_USAGE_ERROR_H_

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"

namespace keval::cli {

// Throws a CLI::ParseError, from a flag's callback alone: main() makes it a status by UsageStatus. `flag` as it is
// written ("--looks", or the name of a positional argument); `limit` reads after "must be".
[[noreturn]] void RefuseFlag(const std::string& flag, const std::string& value, const std::string& limit);

// INVALID_ARGUMENT for `error`, which parsing `app` threw. Its field is the flag's name without dashes, "command" for a
// command that is unknown or missing, "argument" for one too many. What isn't known is named with the nearest that is.
absl::Status UsageStatus(const CLI::App& app, const CLI::ParseError& error);

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_USAGE_ERROR_H_
