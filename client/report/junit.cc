#include "client/report/junit.h"

#include <pugixml.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/number.h"
#include "base/text.h"
#include "client/report/report_value.h"

namespace keval::report {
namespace {

enum class Result : std::uint8_t { kPassed, kFailure, kError, kSkipped };

struct TestCase {
  std::string class_name;
  std::string name;
  Result result = Result::kPassed;
  std::string message;  // Why it did not pass.
  std::string output;   // Its figures.
  double seconds = 0;
};

double SecondsOfJob(const Json& report) {
  constexpr double kMsPerSecond = 1000;
  const auto start = NumberOf(report, "start_time_unix_ms");
  const auto end = NumberOf(report, "end_time_unix_ms");
  return start && end && *start > 0 && *end > *start ? (*end - *start) / kMsPerSecond : 0;
}

Result ResultOfVerdict(const Json& report) {
  const std::string verdict = TextOf(report, "verdict");
  if (verdict == "IMPROVED" || verdict == "EQUIVALENT") return Result::kPassed;
  if (verdict == "REGRESSED" || verdict == "CONTRACT_FAILED") return Result::kFailure;
  if (verdict == "FAILED") {
    const std::string cause = TextOf(report, "failure_cause");
    return cause == "base" || cause == "candidate" ? Result::kFailure : Result::kError;
  }
  return Result::kSkipped;  // INCONCLUSIVE, or a cancelled job without a verdict.
}

TestCase VerdictCase(const Json& report) {
  const std::string verdict = TextOf(report, "verdict");
  const std::string reason = TextOf(report, "reason");
  TestCase test{.class_name = "keval.verdict", .name = "verdict", .result = ResultOfVerdict(report)};
  const std::string outcome = verdict.empty() ? TextOf(report, "state") : verdict;
  test.message = reason.empty() ? outcome : absl::StrCat(outcome, ": ", reason);
  test.output = absl::StrCat(test.message, "\n", TextOf(report, "detail"));
  if (const std::string detail = TextOf(report, "detail"); !detail.empty()) {
    absl::StrAppend(&test.message, ". ", detail);
  }
  for (const Json& excluded : ListOf(report, "excluded")) {
    absl::StrAppend(&test.output, "\nexcluded: round ", TextOf(excluded, "round"), ", ", TextOf(excluded, "cause"), " ",
                    TextOf(excluded, "reason"), ": ", TextOf(excluded, "detail"));
  }
  test.seconds = SecondsOfJob(report);
  return test;
}

Result ResultOfSeries(const std::string& status) {
  for (const absl::string_view good : {"improved", "equivalent", "non_inferior", "shown"}) {
    if (status == good) return Result::kPassed;
  }
  return status == "regressed" || status == "failed" ? Result::kFailure : Result::kSkipped;
}

TestCase SeriesCase(const Json& series) {
  const std::string status = TextOf(series, "status");
  const std::string display = TextOf(series, "display_name");
  TestCase test{.class_name = absl::StrCat("keval.series.", TextOf(series, "series")),
                .name = display.empty() ? TextOf(series, "series") : display,
                .result = ResultOfSeries(status)};
  test.output = absl::StrCat(TextOf(series, "role"), " ", status, ": gain ", PercentOf(series, "gain_pct"), " [",
                             PercentOf(series, "gain_lo_pct"), ", ", PercentOf(series, "gain_hi_pct"), "], ") +
                absl::StrCat(FixedOf(series, "positive", 0), " of ", FixedOf(series, "n", 0), " rounds positive, base ",
                             FixedOf(series, "base_ms", 3), " ms, candidate ", FixedOf(series, "candidate_ms", 3),
                             " ms, margin ", SpreadOf(series, "delta"));
  test.message = test.output;
  return test;
}

TestCase ContractCase(const Json& row) {
  const std::string status = TextOf(row, "status");
  TestCase test{.class_name = absl::StrCat("keval.contract.", TextOf(row, "id")),
                .name = absl::StrCat(TextOf(row, "id"), " ", TextOf(row, "arm"), " ", TextOf(row, "case"))};
  if (status != "pass") test.result = status == "fail" ? Result::kFailure : Result::kSkipped;
  test.output = absl::StrCat(status, ": measured ", ShortOf(row, "measured"), ", limit ", ShortOf(row, "limit"), ". ",
                             TextOf(row, "why"));
  test.message = test.output;
  return test;
}

void Set(pugi::xml_node node, const char* name, const std::string& value) {
  node.append_attribute(name).set_value(XmlText(value).c_str());
}

void SetText(pugi::xml_node node, const std::string& value) {
  node.append_child(pugi::node_pcdata).set_value(XmlText(value).c_str());
}

std::string SecondsText(double seconds) { return FixedText(seconds, 3); }

void Append(const TestCase& test, pugi::xml_node suite) {
  pugi::xml_node node = suite.append_child("testcase");
  Set(node, "classname", test.class_name);
  Set(node, "name", test.name);
  Set(node, "time", SecondsText(test.seconds));
  if (test.result != Result::kPassed) {
    const bool skipped = test.result == Result::kSkipped;
    pugi::xml_node why = node.append_child(skipped ? "skipped" : test.result == Result::kFailure ? "failure" : "error");
    Set(why, "message", test.message);
  }
  SetText(node.append_child("system-out"), test.output);
}

void AppendProperty(const std::string& name, const std::string& value, pugi::xml_node properties) {
  if (value.empty()) return;
  pugi::xml_node property = properties.append_child("property");
  Set(property, "name", name);
  Set(property, "value", value);
}

void AppendProperties(const Json& report, pugi::xml_node suite) {
  pugi::xml_node properties = suite.append_child("properties");
  for (const char* key : {"name", "display_name", "verdict", "reason", "failure_cause", "memory", "spec_digest"}) {
    AppendProperty(key, TextOf(report, key), properties);
  }
  for (const char* arm : {"base", "candidate"}) {
    const Json& one = Member(Member(report, "arms"), arm);
    for (const char* key : {"variant", "display_name", "sha256"}) {
      AppendProperty(absl::StrCat(arm, ".", key), TextOf(one, key), properties);
    }
  }
}

int Count(const std::vector<TestCase>& tests, Result result) {
  int count = 0;
  for (const TestCase& test : tests) count += test.result == result ? 1 : 0;
  return count;
}

// pugixml writes through this; a stream would follow the locale.
class StringWriter : public pugi::xml_writer {
 public:
  void write(const void* data, std::size_t size) override { text_.append(static_cast<const char*>(data), size); }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

std::string RenderJunit(const Json& report) {
  std::vector<TestCase> tests = {VerdictCase(report)};
  for (const Json& series : ListOf(report, "series")) tests.push_back(SeriesCase(series));
  for (const Json& row : ListOf(Member(report, "contract"), "rows")) tests.push_back(ContractCase(row));

  pugi::xml_document document;
  pugi::xml_node declaration = document.append_child(pugi::node_declaration);
  declaration.append_attribute("version") = "1.0";
  declaration.append_attribute("encoding") = "UTF-8";
  pugi::xml_node suite = document.append_child("testsuites").append_child("testsuite");
  const std::string display = TextOf(report, "display_name");
  Set(suite, "name", display.empty() ? TextOf(report, "name") : display);
  Set(suite, "tests", absl::StrCat(tests.size()));
  Set(suite, "failures", absl::StrCat(Count(tests, Result::kFailure)));
  Set(suite, "errors", absl::StrCat(Count(tests, Result::kError)));
  Set(suite, "skipped", absl::StrCat(Count(tests, Result::kSkipped)));
  Set(suite, "time", SecondsText(SecondsOfJob(report)));
  if (const std::string end = UtcOf(report, "end_time_unix_ms"); end != kAbsent) Set(suite, "timestamp", end);
  AppendProperties(report, suite);
  for (const TestCase& test : tests) Append(test, suite);

  StringWriter writer;
  document.save(writer, " ", pugi::format_indent, pugi::encoding_utf8);
  // A carriage return between tags would be read as a newline; in attributes it is a reference already.
  return absl::StrReplaceAll(writer.Take(), {{"\r", "&#13;"}});
}

}  // namespace keval::report
