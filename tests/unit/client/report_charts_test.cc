#include "client/report/charts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <pugixml.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/report/svg.h"
#include "tests/unit/client/report_testing.h"

namespace keval::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Parses, or fails the test.
pugi::xml_document Parse(const std::string& svg) {
  pugi::xml_document document;
  const pugi::xml_parse_result result = document.load_buffer(svg.data(), svg.size());
  EXPECT_TRUE(result) << result.description() << "\n" << svg;
  EXPECT_STREQ(document.document_element().name(), "svg");
  return document;
}

std::size_t Count(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

double HeightOf(const std::string& svg) {
  const std::string box = Parse(svg).document_element().attribute("viewBox").value();
  return std::stod(box.substr(box.rfind(' ')));
}

// Every coordinate lies in the drawing.
void ExpectInside(const std::string& svg) {
  const pugi::xml_document document = Parse(svg);
  const double height = HeightOf(svg);
  for (const pugi::xml_node& node : document.document_element().children()) {
    for (const char* name : {"x", "x1", "x2", "cx"}) {
      if (!node.attribute(name)) continue;
      EXPECT_GE(node.attribute(name).as_double(), 0) << svg;
      EXPECT_LE(node.attribute(name).as_double(), kSvgWidth) << svg;
    }
    for (const char* name : {"y", "y1", "y2", "cy"}) {
      if (!node.attribute(name)) continue;
      EXPECT_GE(node.attribute(name).as_double(), 0) << svg;
      EXPECT_LE(node.attribute(name).as_double(), height) << svg;
    }
  }
}

json WithSeries(int count) {
  json report = MakeReport("gain_3pct");
  const json one = report["series"][0];
  report["series"] = json::array();
  for (int i = 0; i < count; ++i) {
    report["series"].push_back(one);
    report["series"].back()["series"] = "shape " + std::to_string(i);
  }
  return report;
}

TEST(MarkupTest, EscapesAndShowsControls) {
  EXPECT_EQ(Markup("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(Markup("\x1b[2J"), "\\u001B[2J");
  EXPECT_EQ(Markup(""), "");
}

TEST(ScaleTest, PutsValuesInProportion) {
  const Scale scale(-1, 3, 100, 500);
  EXPECT_DOUBLE_EQ(scale.At(-1), 100);
  EXPECT_DOUBLE_EQ(scale.At(0), 200);
  EXPECT_DOUBLE_EQ(scale.At(3), 500);
  EXPECT_TRUE(scale.Holds(3));
  EXPECT_FALSE(scale.Holds(3.01));
}

TEST(ScaleTest, TicksAreRoundAndTellApart) {
  const auto ticks = Scale(-0.013, 0.037, 0, 1).TicksFor(5);
  EXPECT_EQ(ticks.digits, 2);
  ASSERT_EQ(ticks.values.size(), 5U);
  EXPECT_NEAR(ticks.values.front(), -0.01, 1e-12);
  EXPECT_EQ(ticks.values[1], 0);
  EXPECT_FALSE(std::signbit(ticks.values[1]));
  EXPECT_NEAR(ticks.values.back(), 0.03, 1e-12);
  EXPECT_EQ(Scale(0, 2000, 0, 1).TicksFor(4).digits, 0);
}

TEST(ScaleTest, OneValueStillHasAPlace) {
  const Scale scale(5, 5, 0, 10);
  EXPECT_DOUBLE_EQ(scale.At(5), 5);
  EXPECT_FALSE(scale.TicksFor(3).values.empty());
}

TEST(ForestChartTest, ARowHasMarkIntervalAndMargin) {
  const json report = MakeReport("gain_3pct");
  const std::string svg = ForestChart(report);
  ExpectInside(svg);
  for (const json& series : report["series"]) {
    EXPECT_THAT(svg, HasSubstr(absl::StrCat(">", series["series"].get<std::string>(), "<")));
  }
  EXPECT_EQ(Count(svg, "fill-opacity"), 2U);  // Bands of the primary and the guard; a control has no margin.
  EXPECT_THAT(svg, HasSubstr("primary · improved"));
  EXPECT_THAT(svg, HasSubstr("<desc>"));
}

TEST(ForestChartTest, AnIntervalWiderThanTheOthersGoesOnAsAnArrow) {
  json report = MakeReport("gain_3pct");
  const std::size_t before = Count(ForestChart(report), "v8z");
  report["series"][1]["gain_lo_pct"] = -4000;
  report["series"][1]["gain_hi_pct"] = 1e300;
  const std::string svg = ForestChart(report);
  ExpectInside(svg);
  EXPECT_EQ(Count(svg, "v8z"), before + 2);
}

TEST(ForestChartTest, ValuesThatAreNoNumbersAreLeftOut) {
  json report = MakeReport("gain_3pct");
  report["series"][0]["gain_pct"] = "nan";
  report["series"][0]["gain_hi_pct"] = "inf";
  report["series"][1]["gain_pct"] = nullptr;
  const std::string svg = ForestChart(report);
  ExpectInside(svg);
  EXPECT_THAT(svg, HasSubstr("no value"));
  EXPECT_THAT(svg, Not(HasSubstr("\"nan")));
  EXPECT_THAT(svg, Not(HasSubstr("\"inf")));
}

TEST(ForestChartTest, ThirtyShapesGrowDownwards) {
  const std::string svg = ForestChart(WithSeries(30));
  ExpectInside(svg);
  EXPECT_THAT(svg, HasSubstr(">shape 29<"));
  EXPECT_NEAR(HeightOf(svg) - HeightOf(ForestChart(WithSeries(29))), 48, 1e-9);
}

TEST(ForestChartTest, ALongNameEndsInDots) {
  json report = WithSeries(1);
  report["series"][0]["series"] = std::string(300, 'x');
  EXPECT_THAT(ForestChart(report), HasSubstr("xxx…</text>"));
  for (int cut = 0; cut < 3; ++cut) {  // Never inside a character.
    std::string name(static_cast<std::size_t>(cut), 'x');
    for (int i = 0; i < 100; ++i) name += "ü";
    report["series"][0]["series"] = name;
    EXPECT_THAT(ForestChart(report), Not(HasSubstr("\xEF\xBF\xBD")));
  }
}

TEST(RoundsChartTest, ADotForEachRoundFilledAboveZero) {
  json report = WithSeries(1);
  report["series"][0]["D"] = {0.01, -0.01, 0.0, 0.02};
  report["series"][0]["rounds"] = {0, 1, 3, 4};
  const std::string svg = RoundsChart(report);
  ExpectInside(svg);
  EXPECT_EQ(Count(svg, "r=\"3.5\""), 2U);  // Discs.
  EXPECT_EQ(Count(svg, "r=\"3.2\""), 2U);  // Rings.
}

TEST(RoundsChartTest, ASeriesWithoutValuesSaysSo) {
  json report = WithSeries(2);
  report["series"][0]["D"] = json::array();
  EXPECT_THAT(RoundsChart(report), HasSubstr("no round has a value"));
  ExpectInside(RoundsChart(WithSeries(30)));
}

TEST(ClocksChartTest, ShowsWhatTheDeviceTells) {
  json report = MakeReport("gain_3pct");
  EXPECT_THAT(ClocksChart(report), HasSubstr("temperature"));
  EXPECT_THAT(ClocksChart(report), Not(HasSubstr("SM clock")));  // Null throughout.
  for (json& block : report["blocks"]) {
    block["before"]["sm_clock_mhz"] = 1980;
    block["after"]["sm_clock_mhz"] = 1410;
  }
  EXPECT_THAT(ClocksChart(report), HasSubstr("SM clock"));
  ExpectInside(ClocksChart(report));
}

TEST(ClocksChartTest, OfManyBlocksKeepsASmallPicture) {
  json report = MakeReport("gain_3pct");
  const json block = report["blocks"][0];
  for (int i = 0; i < 20000; ++i) report["blocks"].push_back(block);
  EXPECT_LT(ClocksChart(report).size(), 100000U);
}

TEST(ClocksChartTest, WithoutReadingsShowsTheForeignLoadOrSaysThereIsNothing) {
  json report = MakeReport("gain_3pct");
  for (json& block : report["blocks"]) block["before"] = block["after"] = json::object();
  EXPECT_THAT(ClocksChart(report), HasSubstr("the device tells no clocks"));
  report["rounds"] = {{{"round", 0}, {"foreign_cpu_cores", 0.25}}, {{"round", 1}, {"foreign_cpu_cores", 1.5}}};
  EXPECT_THAT(ClocksChart(report), HasSubstr("cores kept busy by other processes"));
  ExpectInside(ClocksChart(report));
  report["blocks"] = json::array();
  report["rounds"] = json::array();
  EXPECT_THAT(ClocksChart(report), HasSubstr("no block was measured"));
}

TEST(PicturesTest, AreThreeFilesOfSvg) {
  std::vector<std::string> names;
  for (const Picture& picture : Pictures(MakeReport("gain_3pct"))) {
    Parse(picture.svg);
    names.push_back(picture.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"forest.svg", "rounds.svg", "clocks.svg"}));
}

TEST(PicturesTest, HostileNamesStayText) {
  for (const std::string& name : HostileNames()) {
    json report = WithName(MakeReport("gain_3pct"), name);
    for (json& series : report["series"]) series["series"] = "</text><script>" + name;
    for (const Picture& picture : Pictures(report)) {
      Parse(picture.svg);
      EXPECT_THAT(picture.svg, Not(HasSubstr("<script")));
    }
  }
}

}  // namespace
}  // namespace keval::report
