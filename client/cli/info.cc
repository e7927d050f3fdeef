// keval info: what a server is, has and allows.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "client/cli/proto_json.h"

namespace keval::cli {
namespace {

std::string InfoText(const v1::ServerInfo& info) {
  std::string text = absl::StrCat("keval ", PrintableText(info.build().version(), 64), " ",
                                  PrintableText(info.build().commit(), 64), info.draining() ? " (draining)" : "", "\n");
  for (const v1::DeviceInfo& device : info.devices()) {
    absl::StrAppend(&text, "device ", PrintableText(device.name(), 64), ": ", PrintableText(device.model(), 128),
                    device.healthy() ? "" : " (unhealthy)", device.runs_gradients() ? ", gradients" : "",
                    device.runs_benchmarks() ? ", benchmarks" : "", device.note().empty() ? "" : ", ",
                    PrintableText(device.note(), 256), "\n");
  }
  for (const v1::VariantInfo& variant : info.variants()) {
    absl::StrAppend(&text, "variant ", PrintableText(variant.name(), 64), ": ",
                    PrintableText(variant.description(), 256), "\n");
  }
  absl::StrAppend(&text, "unary gradients up to ", info.limits().max_unary_bytes(), " bytes\n");
  return text;
}

int Info(const Session& session) {
  const auto client = session.Connect();
  if (!client.ok()) return Complain(client.status(), session.json);
  const auto info = client->GetServerInfo(session.Options());
  if (!info.ok()) return Complain(info.status(), session.json);
  const auto status = session.json ? PrintJson(session, ProtoToJson(*info)) : PrintText(InfoText(*info));
  return status.ok() ? kDone : Complain(status, session.json);
}

}  // namespace

void AddInfo(CLI::App* app, Action* action) {
  CLI::App* const command = app->add_subcommand("info", "what the server is, has and allows");
  command->callback([=] { *action = [](Session& session) { return Info(session); }; });
}

}  // namespace keval::cli
