#include "client/report/html.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/report/charts.h"
#include "client/report/svg.h"

namespace keval::report {
namespace {

// Readable on a telephone: nothing is wider than the screen but tables, which scroll by themselves. Colours are the
// reader's own.
constexpr char kStyle[] = R"(
:root { color-scheme: light dark; }
body { font-family: system-ui, sans-serif; line-height: 1.45; max-width: 46rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; border-bottom: 1px solid; padding-bottom: .2rem; }
p, li, td, code { overflow-wrap: anywhere; }
blockquote { margin: .7rem 0; padding: .4rem .8rem; border-left: 4px solid; }
svg { display: block; width: 100%; max-width: 38rem; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; }
td, th { text-align: left; vertical-align: top; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid #8886; }
th, td.figure { white-space: nowrap; font-variant-numeric: tabular-nums; }
td { min-width: 3rem; }
td.name { min-width: 9rem; }
summary { cursor: pointer; }
@media print { body { max-width: none; } h2 { break-after: avoid; } svg { break-inside: avoid; } }
)";

class HtmlTable {
 public:
  // Cells hold markup already.
  explicit HtmlTable(std::vector<std::string> header) : header_(std::move(header)) {}
  // The first and the last cell may be broken into lines anywhere, those between are kept whole.
  void Add(const std::vector<std::string>& cells) {
    text_ += "<tr>";
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const char* const kind = i == 0 ? " class=\"name\"" : i + 1 < cells.size() ? " class=\"figure\"" : "";
      absl::StrAppend(&text_, "<td", kind, ">", cells[i], "</td>");
    }
    text_ += "</tr>\n";
  }
  bool empty() const { return text_.empty(); }
  std::string Text() const {
    if (empty()) return "";
    std::string head;
    for (const std::string& cell : header_) absl::StrAppend(&head, "<th scope=\"col\">", cell, "</th>");
    if (!head.empty()) head = absl::StrCat("<tr>", head, "</tr>\n");
    return absl::StrCat("<div class=\"scroll\"><table>\n", head, text_, "</table></div>\n");
  }

 private:
  const std::vector<std::string> header_;
  std::string text_;
};

std::string M(const Json& object, absl::string_view key) {
  const std::string text = TextOf(object, key);
  return text.empty() ? std::string(kAbsent) : Markup(text);
}

std::string Section(absl::string_view heading, const std::string& body) {
  return body.empty() ? "" : absl::StrCat("<h2>", heading, "</h2>\n", body);
}

std::string Outcome(const Json& report) {
  const std::string verdict = TextOf(report, "verdict");
  const std::string reason = TextOf(report, "reason");
  // A job that was cancelled has no verdict.
  return absl::StrCat(verdict.empty() ? TextOf(report, "state") : verdict,
                      reason.empty() ? "" : absl::StrCat(" (", reason, ")"));
}

std::string Head(const Json& report) {
  const std::string display = TextOf(report, "display_name");
  std::string text =
      absl::StrCat("<h1>", Markup(Outcome(report)), "</h1>\n<p>", Markup(display), display.empty() ? "" : " · ",
                   "<code>", M(report, "name"), "</code> · ended ", UtcOf(report, "end_time_unix_ms"), "</p>\n");
  if (const std::string detail = TextOf(report, "detail"); !detail.empty()) {
    absl::StrAppend(&text, "<blockquote>", Markup(detail), "</blockquote>\n");
  }
  HtmlTable facts({});
  const Json& arms = Member(report, "arms");
  for (const char* arm : {"base", "candidate"}) facts.Add({arm, M(Member(arms, arm), "variant")});
  const Json& environment = Member(report, "environment");
  const std::string gpu = TextOf(environment, "gpu_model");
  facts.Add({"device", absl::StrCat(M(environment, "device"), ", ",
                                    Markup(gpu.empty() ? TextOf(environment, "cpu_model") : gpu))});
  const std::string stop = TextOf(report, "stop_look");
  facts.Add({"decided", stop.empty() ? "by no look"
                                     : absl::StrCat("at ", Markup(stop), " rounds, row ", M(report, "rule"),
                                                    " of the decision table")});
  facts.Add({"memory rule", M(report, "memory")});
  if (const std::string cause = TextOf(report, "failure_cause"); !cause.empty()) {
    facts.Add({"caused by", Markup(cause)});
  }
  return text + facts.Text();
}

std::string Results(const Json& report) {
  HtmlTable table({"series", "role", "status", "base ms", "candidate ms", "gain", "interval", "in cycles", "rounds +"});
  for (const Json& series : ListOf(report, "series")) {
    const std::string display = TextOf(series, "display_name");
    table.Add({absl::StrCat(M(series, "series"), display.empty() ? "" : "<br>", Markup(display)), M(series, "role"),
               M(series, "status"), FixedOf(series, "base_ms", 3), FixedOf(series, "candidate_ms", 3),
               PercentOf(series, "gain_pct"),
               absl::StrCat(PercentOf(series, "gain_lo_pct"), " … ", PercentOf(series, "gain_hi_pct")),
               PercentOf(Member(series, "cycles"), "gain_pct"),
               absl::StrCat(FixedOf(series, "positive", 0), " of ", FixedOf(series, "n", 0))});
  }
  return table.Text();
}

std::string List(const std::vector<std::string>& items) {
  std::string list;
  for (const std::string& item : items) absl::StrAppend(&list, "<li>", item, "</li>\n");
  return list.empty() ? "" : absl::StrCat("<ul>\n", list, "</ul>\n");
}

std::string Lost(const Json& report) {
  std::vector<std::string> items;
  for (const Json& one : ListOf(report, "excluded")) {
    const std::string round = TextOf(one, "round");
    items.push_back(absl::StrCat("<b>", M(one, "phase"), round.empty() ? "" : " ", Markup(round), ": ", M(one, "cause"),
                                 ", ", M(one, "reason")) +
                    absl::StrCat("</b>: ", M(one, "detail")));
  }
  return List(items);
}

std::string FailedChecks(const Json& report) {
  std::vector<std::string> items;
  for (const Json& row : ListOf(Member(report, "contract"), "rows")) {
    if (TextOf(row, "status") != "fail") continue;
    items.push_back(absl::StrCat("<b>", M(row, "id"), ", ", M(row, "arm"), "</b>, ", M(row, "case"), ": measured ") +
                    absl::StrCat(ShortOf(row, "measured"), ", limit ", ShortOf(row, "limit"), ": ", M(row, "why")));
  }
  return List(items);
}

std::string Notes(const Json& report) {
  std::vector<std::string> items;
  for (const Json& note : ListOf(report, "notes")) items.push_back(Markup(TextOf(note)));
  return List(items);
}

std::string Identity(const Json& report) {
  HtmlTable table({});
  for (const char* part : {"versions", "environment"}) {
    const Json& facts = Member(report, part);
    if (!facts.is_object()) continue;
    for (const auto& [name, value] : facts.items()) table.Add({Markup(name), Markup(TextOf(value))});
  }
  if (table.empty()) return "";
  return absl::StrCat("<details><summary>Versions and environment</summary>\n", table.Text(), "</details>\n");
}

}  // namespace

std::string RenderHtml(const Json& report) {
  std::string page = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      // Whatever a name should manage to become: nothing is loaded and nothing runs.
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n",
      "<title>keval: ", Markup(Outcome(report)), "</title>\n<style>", kStyle, "</style>\n</head>\n<body>\n");
  page += Head(report);
  page += Section("Checks that failed", FailedChecks(report));
  page += Section("Attempts lost", Lost(report));
  page += Section("Gain by shape", ForestChart(report));
  page += Results(report);
  page += Section("Rounds in order", RoundsChart(report));
  page += Section("Clocks over time", ClocksChart(report));
  page += Section("Notes", Notes(report));
  page += Section("Identity", Identity(report));
  absl::StrAppend(&page,
                  "<p>All figures: <code>report.md</code>, <code>report.json</code>. The verdict again from the raw ",
                  "samples: <code>", M(report, "recompute"), "</code></p>\n</body>\n</html>\n");
  return page;
}

}  // namespace keval::report
