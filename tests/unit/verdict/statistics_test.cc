#include "core/verdict/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace keval::verdict {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsNan;
using testing::Pointwise;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = 3.14159265358979323846;

TEST(TQuantile, MatchesThePublishedValues) {
  EXPECT_NEAR(TQuantile(5, .998), 5.030244, 1e-6);
  EXPECT_NEAR(TQuantile(9, .998), 3.834510, 1e-6);
  EXPECT_NEAR(TQuantile(15, .997), 3.197048, 1e-6);
  EXPECT_NEAR(TQuantile(23, .997), 3.026812, 1e-6);
}

// Independent of any library: closed forms for df 1 and 2, and Simpson's rule over the density elsewhere.
TEST(TQuantile, MatchesClosedForms) {
  for (const double p : {.6, .8, .95, .975, .998, .9995}) {
    EXPECT_NEAR(TQuantile(1, p), std::tan(kPi * (p - 0.5)), 1e-9 * TQuantile(1, p));
    const double x = 2 * p - 1;
    EXPECT_NEAR(TQuantile(2, p), x * std::sqrt(2 / (1 - x * x)), 1e-9 * TQuantile(2, p));
  }
}

double TCdfBySimpson(int df, double t) {
  const double scale = std::exp(std::lgamma((df + 1) / 2.0) - std::lgamma(df / 2.0)) / std::sqrt(df * kPi);
  const auto density = [&](double x) { return scale * std::pow(1 + x * x / df, -(df + 1) / 2.0); };
  constexpr int kSteps = 4000;
  const double h = t / kSteps;
  double sum = density(0) + density(t);
  for (int i = 1; i < kSteps; ++i) sum += (i % 2 == 1 ? 4 : 2) * density(i * h);
  return 0.5 + sum * h / 3;
}

TEST(TQuantile, InvertsTheIntegratedDensity) {
  for (const int df : {3, 5, 9, 15, 23, 100, 199}) {
    for (const double p : {.8, .95, .975, .985, .99, .997, .998, .9995}) {
      EXPECT_NEAR(TCdfBySimpson(df, TQuantile(df, p)), p, 1e-10) << df << " " << p;
    }
  }
}

TEST(TTest, GivesBothTails) {
  const OneSidedP p = TTest(0.02, 0.01, 5);
  EXPECT_NEAR(p.loss, TCdfBySimpson(5, 2), 1e-10);
  EXPECT_NEAR(p.gain, 1 - TCdfBySimpson(5, 2), 1e-10);
}

TEST(TTest, WithoutSpreadGoesByTheSign) {
  EXPECT_EQ(TTest(0.1, 0, 5).gain, 0);
  EXPECT_EQ(TTest(0.1, 0, 5).loss, 1);
  EXPECT_EQ(TTest(0, 0, 5).gain, 0.5);
  EXPECT_EQ(TTest(0, 0, 5).loss, 0.5);
  EXPECT_EQ(TTest(-0.1, 0, 5).gain, 1);
  EXPECT_EQ(TTest(-0.1, 0, 5).loss, 0);
  EXPECT_THAT(TTest(0.1, kNaN, 0).loss, IsNan());
}

TEST(BinomialTwoSidedP, MatchesCountedTails) {
  EXPECT_EQ(BinomialTwoSidedP(0, 0), 1);
  EXPECT_NEAR(BinomialTwoSidedP(0, 7), 2.0 / 128, 1e-15);
  EXPECT_NEAR(BinomialTwoSidedP(8, 0), 2.0 / 256, 1e-15);
  EXPECT_NEAR(BinomialTwoSidedP(1, 9), 2.0 * (1 + 10) / 1024, 1e-15);
  EXPECT_EQ(BinomialTwoSidedP(5, 5), 1);  // Twice the tail would be more than 1.
}

TEST(Median, TakesTheMiddleOrTheMeanOfTheTwo) {
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 3, 2}), 2.5);
  EXPECT_THAT(Median({}), IsNan());
}

TEST(SampleSd, DividesByOneLess) {
  EXPECT_NEAR(SampleSd(std::vector<double>{2, 4, 4, 4, 5, 5, 7, 9}), std::sqrt(32.0 / 7), 1e-14);
  EXPECT_THAT(SampleSd(std::vector<double>{1}), IsNan());
}

TEST(Percentile, TakesTheNearestRank) {
  std::vector<double> values;
  for (int i = 20; i >= 1; --i) values.push_back(i);
  EXPECT_EQ(Percentile(values, .95), 19);
  EXPECT_EQ(Percentile(values, .951), 20);
  EXPECT_EQ(Percentile({7}, .95), 7);
  EXPECT_THAT(Percentile({}, .95), IsNan());
}

TEST(HodgesLehmann, IsTheMedianOfPairMeans) {
  // Pair means: 1, 2, 6 (own), 1.5, 3.5, 4 -> sorted 1 1.5 2 3.5 4 6.
  EXPECT_EQ(HodgesLehmann(std::vector<double>{1, 2, 6}), 2.75);
}

TEST(Holm, AdjustsByRunningMaximum) {
  EXPECT_THAT(HolmAdjust(std::vector<double>{.04, .01, .03}), Pointwise(DoubleNear(1e-15), {.06, .03, .06}));
  EXPECT_THAT(HolmAdjust(std::vector<double>{.9, .8}), ElementsAre(1, 1));
}

TEST(Holm, StopsAtTheFirstThatIsNotRejected) {
  // .001 ≤ .003/3; .0016 > .003/2, so .0019 ≤ .003/1 is never asked.
  EXPECT_THAT(HolmReject(std::vector<double>{.0019, .001, .0016}, .003), ElementsAre(false, true, false));
  EXPECT_THAT(HolmReject(std::vector<double>{.0019, .001, .0015}, .003), ElementsAre(true, true, true));
}

TEST(Holm, KeepsFileOrderAmongTies) {
  // Two equal p at level/2: the first in the file passes at level/2, the second at level.
  EXPECT_THAT(HolmReject(std::vector<double>{.0015, .0015}, .003), ElementsAre(true, true));
  // At level/1 neither passes the first step.
  EXPECT_THAT(HolmReject(std::vector<double>{.003, .003}, .003), ElementsAre(false, false));
}

TEST(Holm, CountsWhatHasNoPButNeverRejectsIt) {
  EXPECT_THAT(HolmReject(std::vector<double>{kNaN, .0016}, .003), ElementsAre(false, false));
  EXPECT_THAT(HolmReject(std::vector<double>{kNaN, .0015}, .003), ElementsAre(false, true));
  EXPECT_THAT(HolmAdjust(std::vector<double>{kNaN, .1})[0], IsNan());
}

TEST(CeilShare, IsNotLedAstrayByRounding) {
  for (const int n : {5, 10, 15, 20, 25, 30, 35, 100}) EXPECT_EQ(CeilShare(.8, n), n * 4 / 5) << n;
  EXPECT_EQ(CeilShare(.8, 6), 5);
  EXPECT_EQ(CeilShare(.8, 16), 13);
  EXPECT_EQ(CeilShare(.8, 24), 20);
  EXPECT_EQ(CeilShare(.8, 0), 0);
}

}  // namespace
}  // namespace keval::verdict
