#include "client/cli/flags.h"

#include <cstdlib>

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

void AddConnectionFlags(CLI::App* app, ConnectionOptions* options) {
  const auto add = [&](const std::string& name, const char* variable, std::string* value, const std::string& help) {
    const char* const given = std::getenv(variable);
    const std::string otherwise = value->empty() ? "" : absl::StrCat(" or ", *value);
    if (given != nullptr && given[0] != '\0') *value = given;
    app->add_option(name, *value, absl::StrCat(help, "; default $", variable, otherwise));
  };
  add("--server", "KEVAL_SERVER", &options->server, "host:port, [v6]:port or unix:/abs/path");
  add("--token_file", "KEVAL_TOKEN_FILE", &options->token_file,
      "file of your bearer token, which nobody else may read");
  add("--tls_ca", "KEVAL_TLS_CA", &options->tls_ca, "PEM file of the CA of the server's certificate: use TLS");
  add("--tls_cert", "KEVAL_TLS_CERT", &options->tls_cert, "PEM file of your own certificate");
  add("--tls_key", "KEVAL_TLS_KEY", &options->tls_key, "PEM file of its private key");
  add("--tls_server_name", "KEVAL_TLS_SERVER_NAME", &options->tls_server_name,
      "name in the server's certificate, where it isn't --server's host");
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
