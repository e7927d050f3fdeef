// keval verdict SAMPLES.csv: a verdict from raw samples, without a server.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/number.h"
#include "base/text.h"
#include "client/cli/commands.h"
#include "client/cli/exit_code.h"
#include "client/cli/flags.h"
#include "client/cli/usage_error.h"
#include "core/verdict/json.h"
#include "core/verdict/recompute.h"
#include "core/verdict/require.h"

namespace keval::cli {
namespace {

constexpr std::int64_t kMaxSamplesBytes = std::int64_t{1} << 30;
constexpr std::int64_t kMaxConfigBytes = std::int64_t{256} << 20;  // A report.json, block records included.

struct VerdictFlags {
  std::string samples;
  std::string config;
  std::vector<int> looks;
  std::vector<double> a_sup;
  std::vector<double> a_eq;
  std::vector<double> a_ctl;
  std::map<std::string, double> margins;
  verdict::Require require = verdict::Require::kAny;
};

// The file's config, or the defaults, with what the flags say over it.
absl::StatusOr<verdict::Config> MakeConfig(const VerdictFlags& flags) {
  verdict::Config config;
  if (!flags.config.empty()) {
    const auto text = ReadWholeFile(flags.config, kMaxConfigBytes);
    if (!text.ok()) return text.status();
    auto parsed = verdict::ConfigFromJson(*text);
    if (!parsed.ok()) return parsed.status();
    config = *std::move(parsed);
  }
  if (!flags.looks.empty()) config.looks = flags.looks;
  if (!flags.a_sup.empty()) config.a_sup = flags.a_sup;
  if (!flags.a_eq.empty()) config.a_eq = flags.a_eq;
  if (!flags.a_ctl.empty()) config.a_ctl = flags.a_ctl;
  for (const auto& [name, margin] : flags.margins) config.delta[name] = margin;
  return config;
}

std::string OutcomeText(const verdict::Recomputed& recomputed) {
  const verdict::Outcome& outcome = recomputed.outcome;
  std::string text =
      absl::StrCat(outcome.verdict, outcome.reason.empty() ? "" : absl::StrCat(" (", outcome.reason, ")"));
  if (outcome.stop_look && outcome.rounds < *outcome.stop_look) {
    absl::StrAppend(&text, " after ", outcome.rounds, " of ", *outcome.stop_look, " rounds");
  } else if (outcome.stop_look) {
    absl::StrAppend(&text, " at ", *outcome.stop_look, " rounds");
  }
  absl::StrAppend(&text, "\n", PrintableText(outcome.detail), outcome.detail.empty() ? "" : "\n");
  if (!outcome.looks.empty()) {
    for (const verdict::SeriesLook& series : outcome.looks.back().series) {
      absl::StrAppend(&text, "  ", PrintableText(series.series, 128), "  L ", FixedText(series.L, 6), "  [",
                      FixedText(series.sup_lo, 6), ", ", FixedText(series.sup_hi, 6), "]  positive ", series.pos, "/",
                      series.n, "\n");
    }
  }
  absl::StrAppend(&text, recomputed.rows, " rows, SHA-256 ", recomputed.sha256, "\n");
  return text;
}

// A round that the file doesn't hold is easily overlooked: a file whose rounds are counted from 1 lacks round 0.
void NoteMissingRounds(const verdict::Outcome& outcome) {
  if (outcome.looks.empty()) return;
  const verdict::Look& look = outcome.looks.back();
  for (const verdict::SeriesLook& series : look.series) {
    if (series.n >= look.R) continue;
    int first = 0;  // `rounds` ascends from 0: the first place where it skips.
    for (const int round : series.rounds) first += round == first ? 1 : 0;
    Note(absl::StrCat("series ", PrintableText(series.series, 128), ": ", series.n, " of the first ", look.R,
                      " rounds have a value; round ", first,
                      ", counted from 0, is the first that the file lacks or "
                      "whose quads were throttled"));
  }
}

int Verdict(const Session& session, const VerdictFlags& flags) {
  const auto samples = ReadWholeFile(flags.samples, kMaxSamplesBytes);
  if (!samples.ok()) return Complain(samples.status(), session.json);
  const auto config = MakeConfig(flags);
  if (!config.ok()) return Complain(config.status(), session.json);
  const auto recomputed = verdict::RecomputeVerdict(*samples, *config);
  if (!recomputed.ok()) return Complain(recomputed.status(), session.json);
  const auto status =
      session.json ? PrintJson(session, verdict::RecomputedToJson(*recomputed)) : PrintText(OutcomeText(*recomputed));
  if (!status.ok()) return Complain(status, session.json);
  const verdict::Outcome& outcome = recomputed->outcome;
  NoteMissingRounds(outcome);
  return verdict::ExitCode(outcome.verdict, outcome.reason, "", outcome.non_inferior, flags.require);
}

}  // namespace

void AddVerdict(CLI::App* app, Action* action) {
  CLI::App* const command = app->add_subcommand("verdict", "recompute a verdict from a samples file, offline");
  const auto flags = std::make_shared<VerdictFlags>();
  command->add_option("SAMPLES", flags->samples, "samples.csv")->required();
  command->add_option("--config", flags->config, "a config object, or a document with one at its top (report.json)");
  command
      ->add_option_function<std::string>(
          "--looks",
          [=](const std::string& text) {
            for (const absl::string_view part : absl::StrSplit(text, ',')) {
              const auto number = ParseInt64(part);
              if (!number || *number < 1 || *number > 10000) {
                RefuseFlag("--looks", std::string(part), "a whole number in [1, 10000]");
              }
              flags->looks.push_back(static_cast<int>(*number));
            }
          },
          "rounds of each look, e.g. 6,10,16,24")
      ->type_name("R,...");
  AddDoubles(command, "--a_sup", &flags->a_sup, "level of superiority and regression spent at each look");
  AddDoubles(command, "--a_eq", &flags->a_eq, "level of equivalence and non-inferiority spent at each look");
  AddDoubles(command, "--a_ctl", &flags->a_ctl, "two-sided level of the control spent at each look");
  command
      ->add_option_function<std::vector<std::string>>(
          "--margin",
          [=](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) {
              const std::size_t equals = text.rfind('=');
              const auto number = equals == std::string::npos ? std::nullopt : ParseDouble(text.substr(equals + 1));
              if (!number) RefuseFlag("--margin", text, "NAME=NUMBER");
              flags->margins[text.substr(0, equals)] = *number;
            }
          },
          "half-width of \"immaterial\" for a series name or role, e.g. guard=0.02; may be repeated")
      ->type_name("NAME=X");
  AddRequire(command, &flags->require, "any");
  command->callback([=] { *action = [flags](Session& session) { return Verdict(session, *flags); }; });
}

}  // namespace keval::cli
