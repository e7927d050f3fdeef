#include "client/report/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/client/report_testing.h"

namespace keval::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

TEST(RenderHtml, SaysWhatDecidedAndShowsThePictures) {
  const std::string page = RenderHtml(MakeReport("gain_3pct"));
  EXPECT_THAT(page, HasSubstr("<h1>IMPROVED</h1>"));
  EXPECT_THAT(page, HasSubstr("<title>keval: IMPROVED</title>"));
  EXPECT_THAT(page, HasSubstr("portable_addmm"));
  for (const char* heading : {"Attempts lost", "Gain by shape", "Rounds in order", "Clocks over time", "Notes"}) {
    EXPECT_THAT(page, HasSubstr(std::string("<h2>") + heading + "</h2>"));
  }
  EXPECT_THAT(page, HasSubstr("keval verdict samples.csv --config report.json"));
}

TEST(RenderHtml, NeedsNoNetworkAndFitsAPhone) {
  const std::string page = RenderHtml(MakeReport("gain_3pct"));
  EXPECT_THAT(page, HasSubstr("name=\"viewport\" content=\"width=device-width"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* outside : {"<script", "<link", "<img", "src=", "href=", "url(", "@import"}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  // The one address is the name of SVG's namespace, which nobody fetches.
  std::string without = page;
  for (const std::string name = "http://www.w3.org/2000/svg"; without.find(name) != std::string::npos;) {
    without.erase(without.find(name), name.size());
  }
  EXPECT_THAT(without, Not(HasSubstr("http:")));
  EXPECT_THAT(without, Not(HasSubstr("https:")));
}

TEST(RenderHtml, ANameFromOutsideStaysText) {
  for (const std::string& name : {std::string("<script>alert(1)</script>"), std::string("\"><img src=x onerror=y>"),
                                  std::string("</title></svg><b>"), std::string("&lt;'")}) {
    json report = WithName(MakeReport("gain_3pct"), name);
    for (json& series : report["series"]) series["series"] = name;
    report["reason"] = name;
    const std::string page = RenderHtml(report);
    EXPECT_THAT(page, Not(HasSubstr(name))) << name;
    EXPECT_THAT(page, Not(HasSubstr("<script"))) << name;
    EXPECT_THAT(page, Not(HasSubstr("<img"))) << name;
  }
  EXPECT_THAT(RenderHtml(WithName(MakeReport("gain_3pct"), "a<b")), HasSubstr(Escaped("a<b")));
}

TEST(RenderHtml, ControlCharactersOfANameAreShown) {
  for (const std::string& name : HostileNames()) {
    const std::string page = RenderHtml(WithName(MakeReport("gain_3pct"), name));
    for (const char c : page) {
      ASSERT_FALSE((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F) << name;
    }
  }
}

TEST(RenderHtml, OfAFailedJobNamesTheCauseAndWhatWasLost) {
  json report = MakeReport("gain_3pct");
  report["verdict"] = "FAILED";
  report["reason"] = "CANDIDATE_CRASHED";
  report["failure_cause"] = "candidate";
  report.erase("stop_look");
  report["looks"] = json::array();
  for (json& series : report["series"]) {
    series = {{"series", series["series"]}, {"role", series["role"]}, {"status", "no_look"}, {"n", 0}};
  }
  report["contract"]["rows"][0]["status"] = "fail";
  const std::string page = RenderHtml(report);
  EXPECT_THAT(page, HasSubstr("<h1>FAILED (CANDIDATE_CRASHED)</h1>"));
  EXPECT_THAT(page, HasSubstr("by no look"));
  EXPECT_THAT(page, HasSubstr("signal 11"));
  EXPECT_THAT(page, HasSubstr("<b>C1, candidate</b>"));
  EXPECT_THAT(page, HasSubstr("no round has a value"));
}

TEST(RenderHtml, NothingAtAllIsStillAPage) {
  const std::string page = RenderHtml(json::object());
  EXPECT_THAT(page, HasSubstr("</html>"));
  EXPECT_THAT(page, HasSubstr("no series was measured"));
  EXPECT_THAT(RenderHtml(json::parse(R"({"series": [1, null], "blocks": {}, "excluded": ["x"]})")),
              HasSubstr("</html>"));
}

}  // namespace
}  // namespace keval::report
