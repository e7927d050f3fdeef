#include "client/report/report_value.h"

#include <gtest/gtest.h>

#include <cmath>

namespace keval::report {
namespace {

TEST(ReportValue, KeepsAllDigitsOfIntegers) {
  const Json object =
      Json::parse(R"({"seed": 9007199254740993, "big": 18446744073709551615, "text": "9007199254740993"})");
  EXPECT_EQ(TextOf(object, "seed"), "9007199254740993");
  EXPECT_EQ(TextOf(object, "big"), "18446744073709551615");
  EXPECT_EQ(TextOf(object, "text"), "9007199254740993");
}

TEST(ReportValue, ReadsNonFiniteNumbersFromText) {
  const Json object = {{"a", "nan"}, {"b", "inf"}, {"c", "-inf"}, {"d", "x"}, {"e", nullptr}};
  EXPECT_TRUE(std::isnan(*NumberOf(object, "a")));
  EXPECT_EQ(FixedOf(object, "b", 2), "inf");
  EXPECT_EQ(ShortOf(object, "c"), "-inf");
  EXPECT_EQ(ShortOf(object, "d"), "–");
  EXPECT_EQ(FixedOf(object, "e", 1), "–");
  EXPECT_EQ(FixedOf(object, "absent", 1), "–");
}

TEST(ReportValue, ShowsPercentages) {
  const Json object = {{"up", 0.0296}, {"down", -0.0101}, {"pct", 1.934}};
  EXPECT_EQ(GainOf(object, "up"), "+3.00 %");
  EXPECT_EQ(GainOf(object, "down"), "-1.00 %");
  EXPECT_EQ(PercentOf(object, "pct"), "+1.93 %");
  EXPECT_EQ(SpreadOf(Json{{"delta", 0.01}}, "delta"), "1.00 %");
  EXPECT_EQ(SpreadOf(object, "absent"), "–");
}

TEST(ReportValue, ShowsBytesAndTimes) {
  const Json object = {{"bytes", 1572864}, {"time", "1796022348000"}, {"zero", 0}, {"far", 1e300}};
  EXPECT_EQ(BytesOf(object, "bytes"), "1572864 (1.5 MiB)");
  EXPECT_EQ(UtcOf(object, "time"), "2026-11-30T07:05:48Z");
  EXPECT_EQ(UtcOf(object, "zero"), "–");
  EXPECT_EQ(UtcOf(object, "far"), "–");
}

TEST(ReportValue, SurvivesOtherTypes) {
  const Json list = Json::array({1});
  EXPECT_TRUE(Member(list, "x").is_null());
  EXPECT_TRUE(ListOf(list, "x").empty());
  EXPECT_EQ(TextOf(Json{{"x", Json::object()}}, "x"), "");
  EXPECT_FALSE(IsTrue(Json{{"x", "true"}}, "x"));
}

}  // namespace
}  // namespace keval::report
