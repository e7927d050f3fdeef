// Flags with numbers in them, read as base/number.h reads numbers: CLI11's own reading takes 0010 for eight and follows
// the locale.
#ifndef KEVAL_CLIENT_CLI_FLAGS_H_
#define KEVAL_CLIENT_CLI_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "core/verdict/require.h"
#include "keval/connection.h"

namespace keval::cli {

CLI::Option* AddInt64(CLI::App* command, const std::string& name, std::int64_t* value, const std::string& help,
                      std::int64_t least = 0);
CLI::Option* AddUint64(CLI::App* command, const std::string& name, std::uint64_t* value, const std::string& help);
// Seconds, decimals allowed, at least 0.
CLI::Option* AddSeconds(CLI::App* command, const std::string& name, absl::Duration* value, const std::string& help);
// Comma-separated.
CLI::Option* AddDoubles(CLI::App* command, const std::string& name, std::vector<double>* values,
                        const std::string& help);
// --server, --token_file and those of TLS; where one isn't given, KEVAL_SERVER, KEVAL_TOKEN_FILE, KEVAL_TLS_CA, …. Only
// files hold secrets: a command line and an environment can be read by others.
void AddConnectionFlags(CLI::App* app, ConnectionOptions* options);
CLI::Option* AddRequire(CLI::App* command, verdict::Require* require, const std::string& standard);

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_FLAGS_H_
