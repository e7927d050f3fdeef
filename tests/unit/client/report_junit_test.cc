#include "client/report/junit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <pugixml.hpp>
#include <string>
#include <vector>

#include "tests/unit/client/report_testing.h"

namespace keval::report {
namespace {

using testing::HasSubstr;
using testing::Not;

// No character and no reference that XML 1.0 bars; the rest of well-formedness is the parser's to judge.
void ExpectXmlCharacters(const std::string& xml) {
  for (const char c : xml) {
    const auto byte = static_cast<unsigned char>(c);
    EXPECT_TRUE(byte >= 0x20 || c == '\t' || c == '\n' || c == '\r') << "byte " << static_cast<int>(byte);
  }
  EXPECT_THAT(xml, Not(HasSubstr("\xEF\xBF\xBE")));
  EXPECT_THAT(xml, Not(HasSubstr("\xEF\xBF\xBF")));
  for (std::size_t at = xml.find("&#"); at != std::string::npos; at = xml.find("&#", at + 1)) {
    const std::string number = xml.substr(at + 2, xml.find(';', at) - at - 2);
    EXPECT_TRUE(number == "9" || number == "09" || number == "10" || number == "13") << number;
  }
}

pugi::xml_document Parse(const std::string& xml) {
  ExpectXmlCharacters(xml);
  pugi::xml_document document;
  const pugi::xml_parse_result result = document.load_buffer(xml.data(), xml.size());
  EXPECT_TRUE(result) << result.description() << " at " << result.offset;
  return document;
}

std::vector<pugi::xml_node> TestCases(const pugi::xml_document& document) {
  std::vector<pugi::xml_node> cases;
  for (const pugi::xml_node test : document.child("testsuites").child("testsuite").children("testcase")) {
    cases.push_back(test);
  }
  return cases;
}

TEST(RenderJunit, HasVerdictSeriesAndContractRowsInOrder) {
  const auto document = Parse(RenderJunit(MakeReport("gain_3pct")));
  const pugi::xml_node suite = document.child("testsuites").child("testsuite");
  EXPECT_STREQ(suite.attribute("name").value(), "nightly");
  EXPECT_STREQ(suite.attribute("tests").value(), "6");
  EXPECT_STREQ(suite.attribute("failures").value(), "0");
  EXPECT_STREQ(suite.attribute("errors").value(), "0");
  EXPECT_STREQ(suite.attribute("skipped").value(), "1");
  EXPECT_STREQ(suite.attribute("time").value(), "36.500");
  EXPECT_STREQ(suite.attribute("timestamp").value(), "2026-11-30T07:06:25Z");
  const auto cases = TestCases(document);
  ASSERT_EQ(cases.size(), 6U);
  EXPECT_STREQ(cases[0].attribute("name").value(), "verdict");
  EXPECT_STREQ(cases[1].attribute("classname").value(), "keval.series.s1");
  EXPECT_STREQ(cases[1].attribute("name").value(), "shape of s1");
  EXPECT_STREQ(cases[3].attribute("classname").value(), "keval.series.ctl");
  EXPECT_STREQ(cases[4].attribute("name").value(), "C1 candidate plain_bias");
  EXPECT_THAT(cases[1].child("system-out").text().get(),
              HasSubstr("primary improved: gain +2.95 % [+2.06 %, +3.86 %]"));
  EXPECT_THAT(cases[1].child("system-out").text().get(), HasSubstr("6 of 6 rounds positive"));
  EXPECT_STREQ(cases[5].child("skipped").attribute("message").value(),
               "not_applicable: measured nan, limit inf. not enough memory");
}

TEST(RenderJunit, NamesASeriesWithoutDisplayNameItself) {
  json report = MakeReport("gain_3pct");
  report["series"][0]["display_name"] = "";
  EXPECT_STREQ(TestCases(Parse(RenderJunit(report)))[1].attribute("name").value(), "s1");
}

struct Mapping {
  const char* verdict;
  const char* cause;
  const char* child;  // "": passed.
};

TEST(RenderJunit, MapsEveryVerdict) {
  for (const Mapping& mapping :
       {Mapping{"IMPROVED", "", ""}, Mapping{"EQUIVALENT", "", ""}, Mapping{"REGRESSED", "", "failure"},
        Mapping{"CONTRACT_FAILED", "candidate", "failure"}, Mapping{"FAILED", "candidate", "failure"},
        Mapping{"FAILED", "base", "failure"}, Mapping{"FAILED", "harness", "error"},
        Mapping{"FAILED", "device", "error"}, Mapping{"FAILED", "infrastructure", "error"},
        Mapping{"INCONCLUSIVE", "", "skipped"}, Mapping{"", "", "skipped"}}) {
    SCOPED_TRACE(std::string(mapping.verdict) + " " + mapping.cause);
    json report = MakeReport("gain_3pct");
    report["verdict"] = mapping.verdict;
    report["failure_cause"] = mapping.cause;
    const auto document = Parse(RenderJunit(report));
    const pugi::xml_node verdict = TestCases(document)[0];
    for (const char* child : {"failure", "error", "skipped"}) {
      EXPECT_EQ(!verdict.child(child).empty(), std::string(child) == mapping.child) << child;
    }
  }
}

TEST(RenderJunit, MapsEveryStatusOfASeries) {
  const std::vector<std::pair<std::string, std::string>> mappings = {
      {"improved", ""},         {"equivalent", ""},      {"non_inferior", ""},        {"shown", ""},
      {"regressed", "failure"}, {"failed", "failure"},   {"inconclusive", "skipped"}, {"short", "skipped"},
      {"no_look", "skipped"},   {"not_shown", "skipped"}};
  for (const auto& [status, want] : mappings) {
    json report = MakeReport("gain_3pct");
    report["series"][0]["status"] = status;
    const auto document = Parse(RenderJunit(report));
    const pugi::xml_node series = TestCases(document)[1];
    for (const char* child : {"failure", "error", "skipped"}) {
      EXPECT_EQ(!series.child(child).empty(), want == child) << status << " " << child;
    }
  }
}

TEST(RenderJunit, FailingRowsAndRegressionsAreCounted) {
  json report = MakeReport("guard_regression");
  report["contract"]["rows"][0]["status"] = "fail";
  const auto document = Parse(RenderJunit(report));
  const pugi::xml_node suite = document.child("testsuites").child("testsuite");
  EXPECT_STREQ(suite.attribute("failures").value(), "3");  // The verdict, s2 and C1.
  EXPECT_STREQ(suite.attribute("skipped").value(), "1");
  EXPECT_THAT(TestCases(document)[0].child("failure").attribute("message").value(), HasSubstr("REGRESSED"));
}

TEST(RenderJunit, InconclusiveSaysTheNextStep) {
  const auto document = Parse(RenderJunit(MakeReport("pseudorep_null")));
  const std::string message = TestCases(document)[0].child("skipped").attribute("message").value();
  EXPECT_THAT(message, HasSubstr("INCONCLUSIVE: BUDGET"));
  EXPECT_THAT(message, HasSubstr("Next step"));
}

TEST(RenderJunit, StaysWellFormedWithEveryHostileName) {
  const json plain = MakeReport("gain_3pct");
  const std::size_t cases = TestCases(Parse(RenderJunit(plain))).size();
  for (const std::string& name : HostileNames()) {
    const auto document = Parse(RenderJunit(WithName(plain, name)));
    EXPECT_EQ(TestCases(document).size(), cases) << name;
  }
}

std::string Property(const pugi::xml_document& document, const std::string& name) {
  for (const pugi::xml_node property :
       document.child("testsuites").child("testsuite").child("properties").children("property")) {
    if (name == property.attribute("name").value()) return property.attribute("value").value();
  }
  return "";
}

TEST(RenderJunit, ReadsBackWhatXmlCanHold) {
  for (const std::string name : {"a < b & \"c\" ]]> d", "rocket \xF0\x9F\x9A\x80", "tab\tand\nnewline",
                                 "carriage\rreturn", "'&amp; &#27; <![CDATA["}) {
    const auto document = Parse(RenderJunit(WithName(MakeReport("gain_3pct"), name)));
    const pugi::xml_node suite = document.child("testsuites").child("testsuite");
    EXPECT_EQ(suite.attribute("name").value(), name);
    const auto cases = TestCases(document);
    EXPECT_EQ(cases[1].attribute("name").value(), name);
    EXPECT_EQ(Property(document, "base.variant"), name);
    EXPECT_EQ(Property(document, "candidate.display_name"), name);
    EXPECT_THAT(cases[0].child("system-out").text().get(), HasSubstr("IMPROVED\n" + name));
    EXPECT_THAT(cases[0].child("system-out").text().get(), HasSubstr("candidate CRASHED: " + name));
    EXPECT_THAT(cases[4].child("system-out").text().get(), HasSubstr(name));
  }
}

TEST(RenderJunit, ShowsWhatXmlCannotHold) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"red \x1B[31mfail\x1B[0m", "red \\u001B[31mfail\\u001B[0m"},
      {std::string("nul \0 bell \a", 12), "nul \\u0000 bell \\u0007"},
      {"noncharacter \xEF\xBF\xBE", "noncharacter \\uFFFE"},
      {"broken \xFF", "broken \xEF\xBF\xBD"}};
  for (const auto& [name, shown] : names) {
    const auto document = Parse(RenderJunit(WithName(MakeReport("gain_3pct"), name)));
    EXPECT_EQ(TestCases(document)[1].attribute("name").value(), shown);
  }
}

TEST(RenderJunit, TakesAnEmptyOrForeignDocument) {
  for (const json& report : {json::object(), json::array({1, 2}), json("text"), json{{"series", 5}, {"contract", {1}}},
                             json{{"series", {1, "x", nullptr}}}}) {
    const auto document = Parse(RenderJunit(report));
    EXPECT_GE(TestCases(document).size(), 1U);
  }
}

}  // namespace
}  // namespace keval::report
