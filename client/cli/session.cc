#include "client/cli/session.h"

#include <cerrno>
#include <cstdio>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/file.h"
#include "base/text.h"
#include "client/cli/exit_code.h"

namespace keval::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& document, int indent) {
  return document.dump(indent, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<Client> Session::Connect() const {
  ConnectionOptions options = connection;
  options.notice = [](const std::string& text) { Note(text); };
  return Client::Connect(std::move(options));
}

absl::Status PrintText(absl::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return written ? absl::OkStatus() : FileError("standard output", "can't be written", errno);
}

absl::Status PrintJson(const Session& session, const Json& document) {
  return PrintText(absl::StrCat(Dump(document, session.events ? -1 : 2), "\n"));
}

absl::Status PrintEvent(const Json& event) { return PrintText(absl::StrCat(Dump(event, -1), "\n")); }

void Note(absl::string_view text) { std::fputs(absl::StrCat("keval: ", PrintableText(text), "\n").c_str(), stderr); }

int Guarded(bool json, const std::function<int()>& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    // Nothing of ours throws; this is memory that isn't there, or a fault in a library.
    return Complain(absl::InternalError(error.what()), json);
  }
}

int Complain(const absl::Status& status, bool json) {
  const auto violation = GetFieldViolation(status);
  const std::string message = PrintableText(status.message());
  if (json) {
    const Json error = {{"code", absl::StatusCodeToString(status.code())},
                        {"field", violation ? violation->field : std::string()},
                        {"message", message}};
    std::fputs(absl::StrCat(Dump(error, -1), "\n").c_str(), stderr);
  } else {
    std::fputs(absl::StrCat("keval: ", absl::StatusCodeToString(status.code()), ": ", message, "\n").c_str(), stderr);
  }
  return ExitCodeOf(status);
}

}  // namespace keval::cli
