// Every command of `keval`, one file for each (job.cc holds the four that answer with a job).
#ifndef KEVAL_CLIENT_CLI_COMMANDS_H_
#define KEVAL_CLIENT_CLI_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <functional>

#include "client/cli/session.h"

namespace keval::cli {

// What a parsed command line runs; returns the exit code.
using Action = std::function<int(Session&)>;

// Each adds its command to `app`; the command, when given, sets `action`.
void AddRun(CLI::App* app, Action* action);
void AddJobCommands(CLI::App* app, Action* action);  // submit, get, cancel, list.
void AddWatch(CLI::App* app, Action* action);
void AddReport(CLI::App* app, Action* action);
void AddVerdict(CLI::App* app, Action* action);
void AddCalibrate(CLI::App* app, Action* action);
void AddHistory(CLI::App* app, Action* action);
void AddContract(CLI::App* app, Action* action);
void AddPlan(CLI::App* app, Action* action);
void AddGradient(CLI::App* app, Action* action);
void AddTensors(CLI::App* app, Action* action);
void AddSessions(CLI::App* app, Action* action);
void AddInfo(CLI::App* app, Action* action);
void AddHealth(CLI::App* app, Action* action);

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_COMMANDS_H_
