#include "client/cli/flags.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/number.h"
#include "base/text.h"

namespace keval::cli {
namespace {

[[noreturn]] void Refuse(const std::string& name, const std::string& text, const std::string& limit) {
  throw CLI::ValidationError(name, absl::StrCat(PrintableText(text, 256), " must be ", limit));
}

}  // namespace

CLI::Option* AddInt64(CLI::App* command, const std::string& name, std::int64_t* value, const std::string& help,
                      std::int64_t least) {
  return command
      ->add_option_function<std::string>(
          name,
          [=](const std::string& text) {
            const auto number = ParseInt64(text);
            if (!number || *number < least) Refuse(name, text, absl::StrCat("a whole number of at least ", least));
            *value = *number;
          },
          help)
      ->type_name("N");
}

CLI::Option* AddSeconds(CLI::App* command, const std::string& name, absl::Duration* value, const std::string& help) {
  return command
      ->add_option_function<std::string>(
          name,
          [=](const std::string& text) {
            const auto number = ParseDouble(text);
            if (!number || *number < 0) Refuse(name, text, "a number of seconds of at least 0");
            *value = absl::Seconds(*number);
          },
          help)
      ->type_name("SECONDS");
}

CLI::Option* AddDoubles(CLI::App* command, const std::string& name, std::vector<double>* values,
                        const std::string& help) {
  return command
      ->add_option_function<std::string>(
          name,
          [=](const std::string& text) {
            values->clear();
            for (const absl::string_view part : absl::StrSplit(text, ',')) {
              const auto number = ParseDouble(part);
              if (!number) Refuse(name, std::string(part), "a number");
              values->push_back(*number);
            }
          },
          help)
      ->type_name("X,...");
}

CLI::Option* AddRequire(CLI::App* command, verdict::Require* require, const std::string& standard) {
  *require = *verdict::ParseRequire(standard);
  return command
      ->add_option_function<std::string>(
          "--require",
          [=](const std::string& text) {
            const auto parsed = verdict::ParseRequire(text);
            if (!parsed) Refuse("--require", text, "improved, no-regression, equivalent or any");
            *require = *parsed;
          },
          absl::StrCat("verdict that exit code 0 needs: improved, no-regression, equivalent or any; default ",
                       standard))
      ->type_name("WHAT");
}

}  // namespace keval::cli
