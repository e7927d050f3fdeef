// keval: the command line. It never calls setlocale, so numbers look the same everywhere.
#include <grpc/support/log.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/large_memory.h"
#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "client/cli/flags.h"
#include "client/cli/interrupts.h"
#include "client/cli/usage_error.h"

namespace keval::cli {
namespace {

constexpr char kVersion[] = "keval " KEVAL_VERSION;

// Usage errors come before --json is known to have been parsed.
bool WantsJson(int argc, char** argv) {
  return std::any_of(argv, argv + argc, [](const char* argument) { return std::strcmp(argument, "--json") == 0; });
}

int Main(int argc, char** argv) {
  Session session;

  CLI::App app("Remote kernel evaluation for linear_logp: gradients, resident tensors, paired benchmark jobs.",
               "keval");
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", kVersion);
  AddConnectionFlags(&app, &session.connection);
  app.add_flag("--json", session.json, "print one JSON document on stdout, and errors as JSON on stderr");
  app.add_flag("--events", session.events, "print a job's events on stdout, as JSON Lines");
  AddSeconds(&app, "--timeout", &session.timeout, "longest that a call may take");
  Action action;
  AddRun(&app, &action);
  AddJobCommands(&app, &action);
  AddWatch(&app, &action);
  AddReport(&app, &action);
  AddVerdict(&app, &action);
  AddCalibrate(&app, &action);
  AddHistory(&app, &action);
  AddContract(&app, &action);
  AddPlan(&app, &action);
  AddGradient(&app, &action);
  AddTensors(&app, &action);
  AddSessions(&app, &action);
  AddInfo(&app, &action);
  AddHealth(&app, &action);
  for (CLI::App* const command : app.get_subcommands({})) command->fallthrough();

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {  // --help, --version
      app.exit(error);
      return kDone;
    }
    return Complain(UsageStatus(app, error), WantsJson(argc, argv));
  }
  const Interrupts interrupts(session.cancel);
  return action(session);
}

}  // namespace
}  // namespace keval::cli

int main(int argc, char** argv) {
  // Whatever fails is in a call's status; gRPC's own lines would mix with what stderr is for.
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args* /*line*/) {});
  // Before threads; without it only large transfers are slower.
  if (!keval::TuneAllocator()) keval::cli::Note("the allocator refused its settings: large transfers will be slow");
  return keval::cli::Guarded(keval::cli::WantsJson(argc, argv), [&] { return keval::cli::Main(argc, argv); });
}
