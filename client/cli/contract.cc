// keval contract: the correctness contract of two variants, checked by the server.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/number.h"
#include "base/text.h"
#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "client/cli/flags.h"
#include "client/cli/proto_json.h"
#include "core/verdict/json.h"

namespace keval::cli {
namespace {

// Without one both are NaN; a NaN that was measured stands beside a limit.
bool HasFigure(const v1::ContractRow& row) { return !(std::isnan(row.measured()) && std::isnan(row.limit())); }

nlohmann::ordered_json RowToJson(const v1::ContractRow& row) {
  return {{"id", row.id()},
          {"arm", row.arm()},
          {"case", row.case_name()},
          {"measured", HasFigure(row) ? verdict::NumberToJson(row.measured()) : nlohmann::ordered_json(nullptr)},
          {"limit", HasFigure(row) ? verdict::NumberToJson(row.limit()) : nlohmann::ordered_json(nullptr)},
          {"status", EnumText(v1::ContractRow::RowStatus_descriptor(), row.status())},
          {"why", row.why()}};
}

std::string RowText(const v1::ContractRow& row) {
  const bool failed = row.status() == v1::ContractRow::ROW_STATUS_FAIL;
  const bool passed = row.status() == v1::ContractRow::ROW_STATUS_PASS;
  return absl::StrCat(failed   ? "FAIL "
                      : passed ? "pass "
                               : "n/a  ",
                      PrintableText(row.id(), 16), "  ", PrintableText(row.arm(), 16), "  ",
                      PrintableText(row.case_name(), 128), "  measured ",
                      HasFigure(row) ? DoubleText(row.measured()) : "–", "  limit ",
                      HasFigure(row) ? DoubleText(row.limit()) : "–", row.why().empty() ? "" : "  ",
                      PrintableText(row.why(), 1024), "\n");
}

int Contract(const Session& session, const v1::CheckContractRequest& request) {
  const auto client = session.Connect();
  if (!client.ok()) return Complain(client.status(), session.json);
  bool passed = true;
  bool any = false;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  absl::Status printed;
  const auto status = client->CheckContract(
      request,
      [&](const v1::ContractRow& row) {
        any = true;
        // A status that this client doesn't know has not been shown to pass.
        passed = passed && (row.status() == v1::ContractRow::ROW_STATUS_PASS ||
                            row.status() == v1::ContractRow::ROW_STATUS_NOT_APPLICABLE);
        if (session.events && printed.ok()) printed = PrintEvent(RowToJson(row));
        if (session.json) {
          rows.push_back(RowToJson(row));
        } else if (!session.events && printed.ok()) {
          printed = PrintText(RowText(row));
        }
      },
      session.Options());
  if (!status.ok()) return Complain(status, session.json);
  if (!any) return Complain(absl::DataLossError("the server sent no row"), session.json);
  if (session.json) {
    printed = PrintJson(session, {{"passed", passed}, {"rows", rows}});
  } else if (printed.ok() && !session.events) {
    printed = PrintText(passed ? "the contract holds\n" : "the contract is broken\n");
  }
  if (!printed.ok()) return Complain(printed, session.json);
  return passed ? kDone : kContractFailed;
}

}  // namespace

void AddContract(CLI::App* app, Action* action) {
  CLI::App* const command = app->add_subcommand("contract", "check the correctness contract of two variants");
  const auto request = std::make_shared<v1::CheckContractRequest>();
  const auto seed = std::make_shared<std::uint64_t>(0);
  command->add_option_function<std::string>(
      "--base", [=](const std::string& text) { request->set_base(text); }, "variant; default portable_matmul_add");
  command->add_option_function<std::string>(
      "--candidate", [=](const std::string& text) { request->set_candidate(text); }, "variant; default portable_addmm");
  command->add_option_function<std::string>(
      "--device", [=](const std::string& text) { request->set_device(text); },
      "cpu or cuda:0; default the server's first");
  AddUint64(command, "--seed", seed.get(), "of the generated inputs");
  command->callback([=] {
    request->set_seed(*seed);
    *action = [request](Session& session) { return Contract(session, *request); };
  });
}

}  // namespace keval::cli
