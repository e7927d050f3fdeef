#include "client/cli/usage_error.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/field_error.h"
#include "base/suggestion.h"
#include "base/text.h"

namespace keval::cli {
namespace {

constexpr char kSeeHelp[] = " (see keval --help)";

std::string WithoutDashes(absl::string_view flag) {
  while (absl::ConsumePrefix(&flag, "-")) {
  }
  return std::string(flag);
}

// `subject` is what the message begins with, e.g. the flag as it is written.
absl::Status Usage(absl::string_view subject, const FieldViolation& violation) {
  return WithField(
      absl::InvalidArgumentError(absl::StrCat(subject, ": ", violation.value, " must be ", violation.limit, kSeeHelp)),
      violation);
}

// A flag's value was refused.
class FlagError : public CLI::ParseError {
 public:
  FlagError(const std::string& flag, const FieldViolation& violation)
      : CLI::ParseError("FlagError", absl::StrCat(flag, ": ", violation.value, " must be ", violation.limit),
                        CLI::ExitCodes::ValidationError),
        status_(Usage(flag, violation)) {}
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// The commands given, from the program down.
std::vector<const CLI::App*> Given(const CLI::App& app) {
  std::vector<const CLI::App*> given = {&app};
  for (auto next = app.get_subcommands(); !next.empty(); next = next.front()->get_subcommands()) {
    given.push_back(next.front());
  }
  return given;
}

// "keval tensors get".
std::string CommandText(const std::vector<const CLI::App*>& given) {
  std::string text = "keval";
  for (auto command = given.begin() + 1; command != given.end(); ++command) {
    absl::StrAppend(&text, " ", (*command)->get_name());
  }
  return text;
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

absl::Status UnknownCommand(const CLI::App& app, const std::string& value) {
  const std::vector<std::string> names = CommandNames(app);
  return Usage("command", {"command", PrintableText(value, 256),
                           absl::StrCat("one of ", absl::StrJoin(names, ", "), Suggestion(value, names))});
}

absl::Status UnknownFlag(const std::vector<const CLI::App*>& given, const std::string& argument) {
  const std::string flag = argument.substr(0, argument.find('='));
  std::vector<std::string> names;
  for (const CLI::App* const app : given) {
    for (const CLI::Option* const option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back(absl::StrCat("--", name));
    }
  }
  const std::string shown = PrintableText(flag, 256);
  return Usage(shown,
               {WithoutDashes(shown), "an unknown flag",
                absl::StrCat("left out: ", CommandText(given), " has none of this name", Suggestion(flag, names))});
}

// The option that CLI11's message begins with, as it names it; nullopt where it speaks of none.
std::optional<std::string> OptionAtStart(const std::vector<const CLI::App*>& given, absl::string_view message) {
  const std::string word(message.substr(0, message.find_first_of(" :")));
  const bool known =
      std::any_of(given.begin(), given.end(), [&](const CLI::App* app) { return app->get_option_no_throw(word); });
  return known ? std::optional(word) : std::nullopt;
}

}  // namespace

void RefuseFlag(const std::string& flag, const std::string& value, const std::string& limit) {
  throw FlagError(flag, {WithoutDashes(flag), PrintableText(value, 256), limit});
}

absl::Status UsageStatus(const CLI::App& app, const CLI::ParseError& error) {
  if (const auto* const refused = dynamic_cast<const FlagError*>(&error)) return refused->status();
  const std::vector<const CLI::App*> given = Given(app);
  const bool awaits_command = !CommandNames(*given.back()).empty();
  // First what nobody knows: a misspelt flag also leaves the right one missing, which is then not the news.
  for (const std::string& argument : app.remaining(/*recurse=*/true)) {
    if (argument == "--") continue;
    if (absl::StartsWith(argument, "-")) return UnknownFlag(given, argument);
    if (awaits_command) return UnknownCommand(*given.back(), argument);
    return Usage("argument", {"argument", PrintableText(argument, 256),
                              absl::StrCat("left out: ", CommandText(given), " takes no more")});
  }
  const std::string message = PrintableText(error.what());
  if (const auto option = OptionAtStart(given, message)) {
    return WithField(absl::InvalidArgumentError(absl::StrCat(message, kSeeHelp)), {WithoutDashes(*option), "", ""});
  }
  if (awaits_command) return UnknownCommand(*given.back(), "what is left out");
  return absl::InvalidArgumentError(absl::StrCat(message, kSeeHelp));
}

}  // namespace keval::cli
