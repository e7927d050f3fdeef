#include "client/report/markdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "tests/unit/client/report_testing.h"

namespace keval::report {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}

// A table's row as GitHub splits it: at pipes that no backslash stands before; blanks around a cell are gone.
std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells(1);
  for (std::size_t i = 1; i + 1 < line.size(); ++i) {
    if (line[i] == '\\' && line[i + 1] == '|') {
      cells.back() += '|';
      ++i;
    } else if (line[i] == '|') {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  for (std::string& cell : cells) {
    cell.erase(0, cell.find_first_not_of(' '));
    cell.erase(cell.find_last_not_of(' ') + 1);
  }
  return cells;
}

using Rows = std::vector<std::vector<std::string>>;

// The rows of the first table whose heading has `heading` as its first cell and, if given, `second` as its second.
Rows TableOf(const std::string& markdown, const std::string& heading, const std::string& second = "") {
  Rows rows;
  bool inside = false;
  for (const std::string& line : Lines(markdown)) {
    if (line.rfind("| ", 0) != 0) {
      if (inside) break;
      continue;
    }
    const auto cells = Cells(line);
    if (inside) rows.push_back(cells);
    if (!inside && cells[0] == heading && (second.empty() || cells[1] == second)) inside = true;
  }
  if (!rows.empty()) rows.erase(rows.begin());  // The rule.
  return rows;
}

TEST(RenderMarkdown, BeginsWithTheVerdict) {
  const std::string text = RenderMarkdown(MakeReport("gain_3pct"));
  EXPECT_THAT(text,
              StartsWith("## keval: `IMPROVED`\n\n`nightly` · `jobs/0123456789abcdef0123456789abcdef`\n\n> `Every "
                         "primary improved"));
  EXPECT_THAT(RenderMarkdown(MakeReport("control_bias")), StartsWith("## keval: `INCONCLUSIVE` (`CONTROL_FAILED`)\n"));
}

TEST(RenderMarkdown, ShowsEachSeriesFigures) {
  const json report = MakeReport("gain_3pct");
  const Rows rows = TableOf(RenderMarkdown(report), "series", "role");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0][0], "`s1` `shape of s1`");
  EXPECT_EQ(rows[0][1], "`primary`");
  EXPECT_EQ(rows[0][2], "`improved`");
  EXPECT_NEAR(std::stod(rows[0][3]), report["series"][0]["base_ms"].get<double>(), 5e-4);
  EXPECT_NEAR(std::stod(rows[0][4]), report["series"][0]["candidate_ms"].get<double>(), 5e-4);
  // exp(0.02910228903) - 1 = 2.953 %, exp(0.02035) - 1, exp(0.03785) - 1.
  EXPECT_EQ(rows[0][5], "+2.95 %");
  EXPECT_EQ(rows[0][6], "+2.06 % … +3.86 %");
  EXPECT_EQ(rows[0][7], "1.00 % `default`");
  EXPECT_EQ(rows[0][8], "6 of 6");
  EXPECT_EQ(rows[2][2], "`shown`");
  EXPECT_EQ(rows[2][7], "–");  // A control has no margin.
}

TEST(RenderMarkdown, ShowsTheRuleAndHowItEnded) {
  const Rows rows = TableOf(RenderMarkdown(MakeReport("pseudorep_null")), "what");
  EXPECT_THAT(rows, Contains(ElementsAre("rule that fired (row of the decision table)", "`11`")));
  EXPECT_THAT(rows, Contains(ElementsAre("decided at", "`10 rounds`")));
  EXPECT_THAT(rows, Contains(ElementsAre("memory rule", "`met`")));
  EXPECT_THAT(rows, Contains(ElementsAre("rounds needed (estimate)", "11, limited by `s1`")));
  EXPECT_THAT(rows, Contains(ElementsAre("throttling", "blocks A 0, B 0 (p 1); quads dropped 0")));
}

TEST(RenderMarkdown, HoldsEveryRoundsDifference) {
  const json report = MakeReport("gain_3pct");
  const Rows rows = TableOf(RenderMarkdown(report), "series", "D_r by round (round: gain)");
  ASSERT_EQ(rows.size(), 3U);
  const double first = report["series"][0]["D"][0].get<double>();
  EXPECT_NEAR(std::stod(rows[0][1].substr(3)), 100 * std::expm1(first), 5e-3);
  EXPECT_THAT(rows[0][1], StartsWith("0: +"));
  EXPECT_THAT(rows[0][1], HasSubstr(", 5: +"));
}

TEST(RenderMarkdown, KeepsPredictionApartFromMeasurement) {
  const std::string text = RenderMarkdown(MakeReport("gain_3pct"));
  const std::size_t measured = text.find("**Measured**");
  const std::size_t predicted = text.find("**Predicted, not measured**");
  ASSERT_NE(measured, std::string::npos);
  ASSERT_NE(predicted, std::string::npos);
  const Rows ops = TableOf(text.substr(measured, predicted - measured), "series", "arm");
  EXPECT_THAT(ops, Contains(ElementsAre("`s1`", "base", "`aten::add_` 8, `aten::mm` 8", "`gemm` 8", "2.500")));
  EXPECT_THAT(ops, Contains(ElementsAre("`s1`", "candidate", "`aten::addmm_` 8", "`gemm` 8", "2.000")));
  EXPECT_THAT(ops, Contains(ElementsAre("`s1`", "candidate − base", "`aten::add_` -8, `aten::addmm_` 8, `aten::mm` -8",
                                        "–", "-0.500")));
  const Rows bytes = TableOf(text.substr(text.find("hardware counters**"), predicted), "series", "arm");
  EXPECT_THAT(bytes, Contains(ElementsAre("`s1`", "base", "3145728 (3.0 MiB)", "1048576 (1.0 MiB)")));
  EXPECT_THAT(bytes, Contains(ElementsAre("`s1`", "candidate − base", "-1048576 (-1.0 MiB)", "0 (0.0 MiB)")));
  EXPECT_THAT(text.substr(measured, predicted - measured), Not(HasSubstr("4294967296")));
  const Rows traffic = TableOf(text.substr(predicted), "series");
  EXPECT_THAT(traffic[0], Contains("4294967296 (4096.0 MiB)"));
}

TEST(RenderMarkdown, SaysWhyThereAreNoHardwareCounters) {
  json report = MakeReport("gain_3pct");
  for (json& series : report["series"]) {
    series["dram"] = {{"base", nullptr}, {"candidate", nullptr}, {"difference", nullptr}, {"note", "a | CPU"}};
  }
  const std::string text = RenderMarkdown(report);
  EXPECT_THAT(TableOf(text, "series", "no hardware counters, because"), Contains(ElementsAre("`s1`", "`a | CPU`")));
}

TEST(RenderMarkdown, SaysWhereOpsWereNotMeasured) {
  json report = MakeReport("gain_3pct");
  for (json& series : report["series"]) {
    series.erase("ops");
    series.erase("kernels");
  }
  const std::string text = RenderMarkdown(report);
  EXPECT_THAT(text, HasSubstr("Op counts were not measured."));
  EXPECT_THAT(text, Not(HasSubstr("**Measured**")));
  EXPECT_THAT(text, HasSubstr("**Predicted, not measured**"));
}

TEST(RenderMarkdown, HoldsTheEvidence) {
  const std::string text = RenderMarkdown(MakeReport("gain_3pct"));
  EXPECT_THAT(TableOf(text, "series", "round"),
              Contains(ElementsAre("`s1`", "`1`", "2097152 (2.0 MiB)", "1048577 (1.0 MiB)")));
  EXPECT_THAT(TableOf(text, "series", "base"),
              Contains(ElementsAre("`s1`", "2097152 (2.0 MiB)", "1048576 (1.0 MiB)", "3145728 (3.0 MiB)", "yes")));
  EXPECT_THAT(TableOf(text, "check", "pass"), Contains(ElementsAre("`C1`", "1", "0", "0")));
  EXPECT_THAT(TableOf(text, "check", "arm"), Contains(ElementsAre("`C12`", "`base`", "`large`", "nan", "inf",
                                                                  "`not_applicable`", "`not enough memory`")));
  EXPECT_THAT(TableOf(text, "round", "arm"),
              Contains(ElementsAre("`2`", "`candidate`", "`candidate`", "`CRASHED`", "`12`", "`signal 11`")));
  EXPECT_THAT(TableOf(text, "diagnostic"), Contains(ElementsAre("`s1/chunks=4`", "`forward_backward`", "4", "4.500",
                                                                "4.250", "+5.87 %", "`3`", "33554432 (32.0 MiB)")));
  EXPECT_THAT(TableOf(text, "diagnostic", "absent because"),
              Contains(ElementsAre("`s1/weight_gradient`", "`candidate, OUT_OF_MEMORY: no room`")));
  EXPECT_THAT(TableOf(text, "declared before round 1"), Contains(ElementsAre("seed", "`9007199254740993`")));
  EXPECT_THAT(TableOf(text, "declared before round 1"), Contains(ElementsAre("looks (rounds)", "6, 10")));
  EXPECT_THAT(TableOf(text, "round", "series"), Contains(ElementsAre("`0`", "`s1`", "`ABBA BAAB`")));
  EXPECT_THAT(TableOf(text, "device reading at block edges"),
              Contains(ElementsAre("`temperature_celsius`", "40 … 47", "41 … 48")));
  EXPECT_THAT(TableOf(text, "device reading at block edges"), Contains(ElementsAre("`sm_clock_mhz`", "–", "–")));
  EXPECT_THAT(TableOf(text, "noise"),
              Contains(ElementsAre("throttle reasons, blocks of arm A", "`power cap (software)` 3")));
  EXPECT_THAT(TableOf(text, "noise"), Contains(ElementsAre("of these with others than ours", "2")));
  EXPECT_THAT(TableOf(text, "series", "sd between rounds")[0], Contains("+3.05 %"));
  EXPECT_THAT(TableOf(text, "arm", "variant"),
              Contains(ElementsAre("candidate", "`portable_addmm`", "`the new way`", "`bb22`")));
  EXPECT_THAT(TableOf(text, "environment"), Contains(ElementsAre("`cpu_model`", "`Example | CPU`")));
  EXPECT_THAT(TableOf(text, "job"), Contains(ElementsAre("`start_time_unix_ms`", "2026-11-30T07:05:49Z")));
  EXPECT_THAT(TableOf(text, "file"), Contains(ElementsAre("`samples.csv`", "`123456`", "`cc33`")));
  EXPECT_THAT(text, HasSubstr("`keval verdict samples.csv --config report.json`"));
}

TEST(RenderMarkdown, PutsFailedChecksFirst) {
  json report = MakeReport("gain_3pct");
  report["contract"]["passed"] = false;
  report["contract"]["rows"][1]["status"] = "fail";
  const std::string text = RenderMarkdown(report);
  EXPECT_THAT(text, HasSubstr("### Correctness: **failed**"));
  const Rows failed = TableOf(text, "check", "arm");
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0][0], "`C12`");
}

// What is in code spans is text; what is left must hold nothing of a name.
std::string WithoutCodeSpans(const std::string& line) {
  std::string out;
  for (std::size_t i = 0; i < line.size();) {
    if (line[i] != '`') {
      out += line[i++];
      continue;
    }
    std::size_t run = 0;
    while (i + run < line.size() && line[i + run] == '`') ++run;
    std::size_t end = i + run;
    for (;; ++end) {
      end = line.find(std::string(run, '`'), end);
      if (end == std::string::npos) break;
      std::size_t length = 0;
      while (end + length < line.size() && line[end + length] == '`') ++length;
      if (length == run) break;
      end += length - 1;
    }
    EXPECT_NE(end, std::string::npos) << "an open code span: " << line;
    if (end == std::string::npos) return out;
    i = end + run;
  }
  return out;
}

TEST(RenderMarkdown, ShowsHostileNamesAsTextAlone) {
  const json plain = MakeReport("gain_3pct");
  std::vector<std::string> names = HostileNames();
  for (const char* name : {"a|b", "a\\|b", "`", "``` fence", "@everyone #1", "<script>HOSTILE</script>",
                           "HOSTILE](http://x.example)", "![HOSTILE](http://x.example/y.png)", "**HOSTILE**",
                           "HOSTILE\n\n# heading", "\\`HOSTILE`", "-->HOSTILE", "\xFF\xFE"}) {
    names.emplace_back(name);
  }
  names.push_back(std::string("\xE2\x80") + "\xAEHOSTILE");  // A right-to-left override.
  const std::size_t lines = Lines(RenderMarkdown(WithName(plain, "plain"))).size();
  for (const std::string& name : names) {
    SCOPED_TRACE(PrintableText(name));
    const std::string text = RenderMarkdown(WithName(plain, name));
    EXPECT_EQ(Lines(text).size(), lines);
    for (const std::string& line : Lines(text)) {
      EXPECT_EQ(PrintableText(line, line.size() + 1), line);  // No control character.
      const std::string rest = WithoutCodeSpans(line);
      EXPECT_THAT(rest, Not(HasSubstr("HOSTILE")));
      EXPECT_THAT(rest, Not(HasSubstr("@")));
      EXPECT_THAT(rest, Not(HasSubstr("http")));
    }
    // Every row of the first table still has all its cells.
    EXPECT_THAT(TableOf(text, "series", "role"), Each(SizeIs(9)));
    EXPECT_THAT(TableOf(text, "environment"), Each(SizeIs(2)));
  }
}

TEST(RenderMarkdown, NameWithAPipeReadsBack) {
  const Rows rows = TableOf(RenderMarkdown(WithName(MakeReport("gain_3pct"), "a | b")), "series", "role");
  EXPECT_EQ(rows[0][0], "`s1` `a | b`");
}

TEST(RenderMarkdown, TakesAFailedJobThatNeverReachedALook) {
  const json report = {
      {"verdict", "FAILED"},          {"reason", "CANDIDATE_CRASHED"},
      {"failure_cause", "candidate"}, {"name", "jobs/1"},
      {"looks", json::array()},       {"series", {{{"series", "s1"}, {"role", "primary"}, {"status", "no_look"}}}}};
  const std::string text = RenderMarkdown(report);
  EXPECT_THAT(text, StartsWith("## keval: `FAILED` (`CANDIDATE_CRASHED`)"));
  EXPECT_THAT(TableOf(text, "series", "role")[0],
              ElementsAre("`s1`", "`primary`", "`no_look`", "–", "–", "–", "– … –", "–", "– of –"));
  EXPECT_THAT(TableOf(text, "what"), Contains(ElementsAre("caused by", "`candidate`")));
}

TEST(RenderMarkdown, TakesAnEmptyOrForeignDocument) {
  for (const json& report : {json::object(), json::array({1, 2}), json("text"), json{{"series", 5}, {"contract", {1}}},
                             json{{"series", {1, "x", nullptr}}, {"blocks", {1, nullptr}}, {"versions", {1}}}}) {
    EXPECT_THAT(RenderMarkdown(report), StartsWith("## keval: "));
  }
}

}  // namespace
}  // namespace keval::report
