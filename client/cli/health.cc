// keval health: whether the server, or one of its devices, takes requests; for probes.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "client/cli/commands.h"
#include "client/cli/exit_code.h"

namespace keval::cli {
namespace {

int Health(const Session& session, const std::string& name) {
  const auto client = session.Connect();
  if (!client.ok()) return Complain(client.status(), session.json);
  const auto serving = client->IsServing(name, session.Options());
  if (!serving.ok()) return Complain(serving.status(), session.json);
  if (!*serving) {
    return Complain(absl::UnavailableError(
                        absl::StrCat(name, " is NOT_SERVING: the server is draining, or a device of it has been lost")),
                    session.json);
  }
  const absl::Status status = session.json ? PrintJson(session, {{"name", name}, {"status", "SERVING"}})
                                           : PrintText(absl::StrCat(PrintableText(name), " is SERVING\n"));
  return status.ok() ? kDone : Complain(status, session.json);
}

}  // namespace

void AddHealth(CLI::App* app, Action* action) {
  CLI::App* const command =
      app->add_subcommand("health", "whether the server takes requests: exit code 0 only where it does");
  const auto name = std::make_shared<std::string>("ready");
  command->add_option("NAME", *name, "ready (the default), live, or a device such as cpu or cuda:0");
  command->callback([=] { *action = [name](Session& session) { return Health(session, *name); }; });
}

}  // namespace keval::cli
