#include "client/report/markdown.h"

#include "absl/strings/str_cat.h"
#include "client/report/markdown_evidence.h"
#include "client/report/markdown_text.h"
#include "client/report/report_value.h"

namespace keval::report {
namespace {

std::string Heading(const Json& report) {
  const std::string verdict = TextOf(report, "verdict");
  const std::string reason = TextOf(report, "reason");
  // A job that was cancelled has no verdict.
  const std::string outcome = verdict.empty() ? TextOf(report, "state") : verdict;
  std::string text = absl::StrCat("## keval: ", CodeSpan(outcome));
  if (!reason.empty()) absl::StrAppend(&text, " (", CodeSpan(reason), ")");
  absl::StrAppend(&text, "\n\n", CodeSpan(TextOf(report, "display_name")), " · ", CodeSpan(TextOf(report, "name")),
                  "\n\n");
  if (const std::string detail = TextOf(report, "detail"); !detail.empty()) {
    absl::StrAppend(&text, "> ", CodeSpan(detail), "\n\n");
  }
  return text;
}

std::string RoundsNeededText(const Json& report) {
  constexpr double kMoreThan = 201;
  const auto rounds = NumberOf(report, "rounds_needed");
  if (!rounds || *rounds <= 0) return std::string(kAbsent);
  const std::string count = *rounds >= kMoreThan ? "more than 200" : TextOf(report, "rounds_needed");
  return absl::StrCat(count, ", limited by ", CodeSpan(TextOf(report, "limiting_series")));
}

std::string ThrottlingText(const Json& report) {
  const Json& blocks = Member(report, "throttled_blocks");
  const auto dropped = NumberOf(report, "quads_dropped");
  if (!blocks.is_object() || !dropped) return std::string(kAbsent);
  return absl::StrCat("blocks A ", FixedOf(blocks, "A", 0), ", B ", FixedOf(blocks, "B", 0), " (p ",
                      ShortOf(report, "throttle_asym_p"), "); quads dropped ", ShortOf(report, "quads_dropped"));
}

std::string DecisionTable(const Json& report) {
  Table table({"what", "value"});
  const std::string stop = TextOf(report, "stop_look");
  table.Add({"rule that fired (row of the decision table)", CodeSpan(TextOf(report, "rule"))});
  table.Add({"decided at", stop.empty() ? std::string(kAbsent) : CodeSpan(stop + " rounds")});
  table.Add({"non-inferior everywhere, control shown", CodeSpan(TextOf(report, "non_inferior"))});
  table.Add({"memory rule", CodeSpan(TextOf(report, "memory"))});
  table.Add({"throttling", ThrottlingText(report)});
  table.Add({"rounds needed (estimate)", RoundsNeededText(report)});
  if (const std::string cause = TextOf(report, "failure_cause"); !cause.empty()) {
    table.Add({"caused by", CodeSpan(cause)});
  }
  return table.Text();
}

// The series' name, with its display name beside it.
std::string SeriesName(const Json& series) {
  const std::string display = TextOf(series, "display_name");
  const std::string name = CodeSpan(TextOf(series, "series"));
  return display.empty() ? name : absl::StrCat(name, " ", CodeSpan(display));
}

std::string Margin(const Json& series) {
  const auto delta = NumberOf(series, "delta");
  if (!delta) return std::string(kAbsent);
  const std::string source = TextOf(series, "delta_source");
  const std::string text = SpreadOf(series, "delta");
  return source.empty() ? text : absl::StrCat(text, " ", CodeSpan(source));
}

std::string ResultTable(const Json& report) {
  Table table({"series", "role", "status", "base ms", "candidate ms", "gain", "interval at the spent level", "margin",
               "rounds positive"});
  for (const Json& series : ListOf(report, "series")) {
    table.Add({SeriesName(series), CodeSpan(TextOf(series, "role")), CodeSpan(TextOf(series, "status")),
               FixedOf(series, "base_ms", 3), FixedOf(series, "candidate_ms", 3), PercentOf(series, "gain_pct"),
               absl::StrCat(PercentOf(series, "gain_lo_pct"), " … ", PercentOf(series, "gain_hi_pct")), Margin(series),
               absl::StrCat(FixedOf(series, "positive", 0), " of ", FixedOf(series, "n", 0))});
  }
  if (table.empty()) return "";
  return absl::StrCat(
      "### Result\n\n", table.Text(),
      "A gain is base's time over the candidate's; a control compares base with its own copy. Margins and spreads "
      "are differences of logarithms in percent.\n\n");
}

std::string StatisticsTable(const Json& report) {
  Table table({"series", "sd between rounds", "sd within rounds", "mean ratio", "p95 ratio", "smallest detectable",
               "gain in cycles", "p of a loss", "Holm p", "Hodges–Lehmann"});
  for (const Json& series : ListOf(report, "series")) {
    table.Add({CodeSpan(TextOf(series, "series")), SpreadOf(series, "between_sd"), SpreadOf(series, "within_sd"),
               FixedOf(series, "mean_ratio", 5), FixedOf(series, "p95_ratio", 5),
               SpreadOf(series, "smallest_detectable"), PercentOf(Member(series, "cycles"), "gain_pct"),
               ShortOf(series, "p_loss"), ShortOf(series, "p_holm"), GainOf(series, "hodges_lehmann")});
  }
  return table.empty() ? "" : Folded("Statistics", table.Text());
}

std::string NotesSection(const Json& report) {
  std::string text;
  for (const Json& note : ListOf(report, "notes")) absl::StrAppend(&text, "- ", CodeSpan(TextOf(note)), "\n");
  return text.empty() ? "" : absl::StrCat("### Notes\n\n", text, "\n");
}

std::string FilesSection(const Json& report) {
  Table table({"file", "bytes", "SHA-256"});
  for (const Json& file : ListOf(report, "files")) {
    table.Add({CodeSpan(TextOf(file, "name")), CodeSpan(TextOf(file, "bytes")), CodeSpan(TextOf(file, "sha256"))});
  }
  const std::string recompute = TextOf(report, "recompute");
  if (table.empty() && recompute.empty()) return "";
  return absl::StrCat("### Raw samples\n\n", table.Text(), "The verdict again from them alone: ", CodeSpan(recompute),
                      "\n\n");
}

}  // namespace

std::string RenderMarkdown(const Json& report) {
  return absl::StrCat(Heading(report), ResultTable(report), DecisionTable(report), NotesSection(report),
                      StatisticsTable(report)) +
         absl::StrCat(RoundsSection(report), MemorySection(report), OperationsSection(report), DispatchSection(report),
                      ContractSection(report)) +
         absl::StrCat(ExcludedSection(report), DiagnosticsSection(report), PlanSection(report), BlocksSection(report),
                      IdentitySection(report)) +
         FilesSection(report);
}

}  // namespace keval::report
