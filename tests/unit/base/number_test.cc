#include "base/number.h"

#include <gtest/gtest.h>

#include <clocale>
#include <limits>
#include <locale>

namespace keval {
namespace {

TEST(NumberTest, ReadsDecimalFormsOnly) {
  EXPECT_EQ(ParseDouble("1e-2"), 0.01);
  EXPECT_EQ(ParseDouble("1.0e-2"), 0.01);
  EXPECT_EQ(ParseDouble("+2"), 2.0);
  for (const char* text : {"", ".", "1e", "0.01%", "0x10", "inf", "nan", "1,5", " 1", "1 ", "+-1", "1e999"}) {
    EXPECT_EQ(ParseDouble(text), std::nullopt) << text;
  }
}

TEST(NumberTest, IntegersStayDecimalAndWhole) {
  EXPECT_EQ(ParseInt64("0010"), 10);
  EXPECT_EQ(ParseInt64("9007199254740993"), 9007199254740993);
  EXPECT_EQ(ParseUint64("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(ParseUint64("-1"), std::nullopt);
  EXPECT_EQ(ParseInt64("9223372036854775808"), std::nullopt);
}

TEST(NumberTest, TextIsShortestAndRoundTrips) {
  EXPECT_EQ(DoubleText(0.1), "0.1");
  EXPECT_EQ(DoubleText(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(FixedText(1.25, 1), "1.2");
  EXPECT_EQ(FixedText(1e300, 0).size(), 301U);
}

TEST(NumberTest, APercentageCarriesItsSign) {
  EXPECT_EQ(SignedPercentText(0.854), "+0.85 %");
  EXPECT_EQ(SignedPercentText(-12), "-12.00 %");
  EXPECT_EQ(SignedPercentText(0), "+0.00 %");
}

TEST(NumberTest, IgnoresTheLocale) {
  // The German locale is installed by scripts/bootstrap; without it this test could show nothing.
  ASSERT_NE(std::setlocale(LC_ALL, "de_DE.UTF-8"), nullptr);
  const std::locale before = std::locale::global(std::locale("de_DE.UTF-8"));
  EXPECT_EQ(ParseDouble("0.01"), 0.01);
  EXPECT_EQ(DoubleText(0.01), "0.01");
  EXPECT_EQ(FixedText(1234.5, 1), "1234.5");
  std::locale::global(before);
  std::setlocale(LC_ALL, "C");
}

TEST(NumberTest, SignificantTextKeepsTheFirstDigits) {
  EXPECT_EQ(SignificantText(0.00012345, 3), "0.000123");
  EXPECT_EQ(SignificantText(1.2345e-7, 3), "1.23e-07");
  EXPECT_EQ(SignificantText(1234, 6), "1234");
  EXPECT_EQ(SignificantText(0, 3), "0");
}

}  // namespace
}  // namespace keval
