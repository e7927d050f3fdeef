// keval sessions list|delete: gradient sessions that the server keeps for the caller.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/number.h"
#include "base/shape.h"
#include "base/text.h"
#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "client/cli/proto_json.h"
#include "client/cli/usage_error.h"

namespace keval::cli {
namespace {

std::string InfoText(const v1::GradientSession& info) {
  const std::vector<std::int64_t> shape(info.weight().shape().begin(), info.weight().shape().end());
  const absl::Duration left = absl::FromUnixMillis(info.expire_time_unix_ms()) - absl::Now();
  return absl::StrCat(PrintableText(info.session(), 128), "  ", PrintableText(info.device(), 64), "  ",
                      EnumText(v1::DataType_descriptor(), info.weight().dtype()), "  ", ShapeText(shape), "  ",
                      info.batches(), " micro-batches, ", info.size_bytes(), " bytes, kept for ",
                      FixedText(absl::ToDoubleSeconds(left), 0), " s\n");
}

int List(const Session& session, const Client& client, const std::string& /*name*/) {
  const auto sessions = client.ListSessions(session.Options());
  if (!sessions.ok()) return Complain(sessions.status(), session.json);
  absl::Status status;
  if (session.json) {
    nlohmann::ordered_json document = {{"sessions", nlohmann::ordered_json::array()}};
    for (const v1::GradientSession& info : *sessions) document["sessions"].push_back(ProtoToJson(info));
    status = PrintJson(session, document);
  } else {
    std::string text;
    for (const v1::GradientSession& info : *sessions) text += InfoText(info);
    status = PrintText(text);
  }
  return status.ok() ? kDone : Complain(status, session.json);
}

int Delete(const Session& session, const Client& client, const std::string& name) {
  const auto status = client.DeleteSession(name, session.Options());
  if (!status.ok()) return Complain(status, session.json);
  const auto printed =
      session.json ? PrintJson(session, {{"session", name}, {"deleted", true}}) : PrintText("deleted\n");
  return printed.ok() ? kDone : Complain(printed, session.json);
}

using Remote = int (*)(const Session&, const Client&, const std::string&);

CLI::App* AddRemote(CLI::App* sessions, const std::string& command_name, const std::string& help,
                    const std::shared_ptr<std::string>& name, Action* action, Remote remote) {
  CLI::App* const command = sessions->add_subcommand(command_name, help);
  command->callback([=] {
    *action = [=](Session& session) {
      const auto client = session.Connect();
      return client.ok() ? remote(session, *client, *name) : Complain(client.status(), session.json);
    };
  });
  return command;
}

}  // namespace

void AddSessions(CLI::App* app, Action* action) {
  CLI::App* const sessions =
      app->add_subcommand("sessions", "gradient sessions that the server keeps: weights, and sums of their gradients");
  sessions->require_subcommand(1)->fallthrough();
  const auto name = std::make_shared<std::string>();
  AddRemote(sessions, "list", "show your gradient sessions", name, action, &List);
  AddRemote(sessions, "delete", "end a gradient session, and lose its sums", name, action, &Delete)
      ->add_option("SESSION", *name, "sessions/ID")
      ->required();
  for (CLI::App* const command : sessions->get_subcommands({})) command->fallthrough();
}

}  // namespace keval::cli
