#include "client/cli/flags.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/number.h"
#include "client/cli/usage_error.h"

namespace keval::cli {

CLI::Option* AddInt64(CLI::App* command, const std::string& name, std::int64_t* value, const std::string& help,
                      std::int64_t least) {
  return command
      ->add_option_function<std::string>(
          name,
          [=](const std::string& text) {
            const auto number = ParseInt64(text);
            if (!number || *number < least) {
              const bool any = least == std::numeric_limits<std::int64_t>::min();
              RefuseFlag(name, text,
                         absl::StrCat("a whole number in [", any ? "-2^63" : absl::StrCat(least), ", 2^63)"));
            }
            *value = *number;
          },
          help)
      ->type_name("N");
}

CLI::Option* AddUint64(CLI::App* command, const std::string& name, std::uint64_t* value, const std::string& help) {
  return command
      ->add_option_function<std::string>(
          name,
          [=](const std::string& text) {
            const auto number = ParseUint64(text);
            if (!number) RefuseFlag(name, text, "a whole number in [0, 2^64)");
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
            if (!number || *number < 0) RefuseFlag(name, text, "a number of seconds of at least 0");
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
              if (!number) RefuseFlag(name, std::string(part), "a number");
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
            if (!parsed) RefuseFlag("--require", text, "improved, no-regression, equivalent or any");
            *require = *parsed;
          },
          absl::StrCat("verdict that exit code 0 needs: improved, no-regression, equivalent or any; default ",
                       standard))
      ->type_name("WHAT");
}

}  // namespace keval::cli
