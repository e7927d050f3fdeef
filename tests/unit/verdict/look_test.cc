#include "core/verdict/look.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/verdict/statistics.h"
#include "tests/unit/verdict/verdict_testing.h"

namespace keval::verdict {
namespace {

using testing::IsNan;

Look LookAt(const std::vector<Sample>& samples, std::size_t index = 0, const Config& config = {}) {
  const auto series = MeasureSeries(samples, [](std::size_t) { return std::string(); });
  EXPECT_TRUE(series.ok()) << series.status();
  return TakeLook(*series, config, index);
}

const std::vector<double> kValues = {.011, .013, .008, .012, .010, .009};

TEST(TakeLook, ComputesFiguresAsWritten) {
  const SeriesLook look = LookAt(MakeSamples({{.name = "s1", .values = kValues}})).series[0];
  const double L = .0105;
  const double sd = std::sqrt((.0005 * .0005 * 2 + .0025 * .0025 * 2 + .0015 * .0015 * 2) / 5);
  const double se = sd / std::sqrt(6.0);
  EXPECT_NEAR(look.L, L, 1e-9);
  EXPECT_NEAR(look.sd, sd, 1e-9);
  EXPECT_NEAR(look.se, se, 1e-9);
  EXPECT_EQ(look.df, 5);
  EXPECT_EQ(look.pos, 6);
  EXPECT_NEAR(look.sup_lo, L - 5.030244 * se, 1e-8);
  EXPECT_NEAR(look.sup_hi, L + 5.030244 * se, 1e-8);
  EXPECT_NEAR(look.ci95[1] - look.ci95[0], 2 * 2.570582 * se, 1e-8);
  EXPECT_NEAR(look.eq_lo, L - 3.364930 * se, 1e-8);
  EXPECT_NEAR(look.ctl_shown, L + 2.015048 * se, 1e-8);
  EXPECT_NEAR(look.smallest_detectable, (5.030244 + 0.919544) * se, 1e-8);
  EXPECT_NEAR(look.hodges_lehmann, HodgesLehmann(kValues), 1e-9);
  EXPECT_NEAR(look.within_sd, 0, 1e-9);
  EXPECT_NEAR(look.meanratio_log, L, 1e-9);
  EXPECT_EQ(look.delta, .01);
}

TEST(TakeLook, UsesOnlyItsOwnRoundsAndLevels) {
  std::vector<double> values = kValues;
  values.insert(values.end(), {.5, .5, .5, .5});
  const std::vector<Sample> samples = MakeSamples({{.name = "s1", .values = values}});
  EXPECT_NEAR(LookAt(samples).series[0].L, .0105, 1e-9);
  const SeriesLook second = LookAt(samples, 1).series[0];
  EXPECT_EQ(second.n, 10);
  EXPECT_NEAR(second.sup_hi - second.L, 3.834510 * second.se, 1e-6);
}

TEST(TakeLook, PoolsQuadsInsideRounds) {
  std::vector<Sample> samples;
  for (int round = 0; round < 6; ++round) {
    int quad = 0;
    for (const double value : {.01, .02, .03}) AppendQuad({.name = "s1"}, round, quad++, value + .1 * round, &samples);
  }
  EXPECT_NEAR(LookAt(samples).series[0].within_sd, .01, 1e-8);
}

TEST(TakeLook, ComparesThe95thPercentiles) {
  std::vector<Sample> samples = MakeSamples({{.name = "s1", .values = Around(0, 0, 6), .base_ns = 1000}});
  // 36 times an arm: the 35th in order is the 95th percentile by nearest rank. Two slow ones of B are the 35th and
  // 36th.
  samples[1].ns = 1500;
  samples[2].ns = 1500;
  EXPECT_NEAR(LookAt(samples).series[0].p95_ratio_log, std::log(1000.0 / 1500.0), 1e-12);
}

TEST(TakeLook, HasNoIntervalFromOneRound) {
  const SeriesLook look = LookAt(MakeSamples({{.name = "s1", .values = {.01}}})).series[0];
  EXPECT_EQ(look.n, 1);
  EXPECT_NEAR(look.L, .01, 1e-9);
  EXPECT_THAT(look.sup_lo, IsNan());
  EXPECT_THAT(look.p_loss, IsNan());
  EXPECT_FALSE(look.improved || look.non_inferior || look.equivalent || look.regressed);
  EXPECT_TRUE(look.is_short);
}

TEST(TakeLook, IsShortBelowFourRoundsWhateverTheLook) {
  Config config;
  config.looks = {3};
  config.a_sup = {.01};
  config.a_eq = {.01};
  config.a_ctl = {.01};
  EXPECT_TRUE(LookAt(MakeSamples({{.name = "s1", .values = {.01, .02, .03}}}), 0, config).series[0].is_short);
}

TEST(TakeLook, HolmCountsPrimariesAndGuardsAlone) {
  const Look look = LookAt(MakeSamples({{.name = "s1", .values = Around(-.02, .004, 6)},
                                        {.name = "s2", .role = Role::kGuard, .values = Around(0, .004, 6)},
                                        {.name = "ctl", .role = Role::kControl, .values = Around(-.02, .004, 6)}}));
  EXPECT_NEAR(look.series[0].p_holm, 2 * look.series[0].p_loss, 1e-15);
  EXPECT_THAT(look.series[2].p_holm, IsNan());
  EXPECT_FALSE(look.series[2].regressed);
  EXPECT_TRUE(look.control_fail);
}

TEST(DeltaOf, PrefersTheName) {
  Config config;
  config.delta = {{"primary", .01}, {"s1", .02}};
  EXPECT_EQ(DeltaOf(config, "s1", Role::kPrimary), .02);
  EXPECT_EQ(DeltaOf(config, "s2", Role::kPrimary), .01);
  EXPECT_THAT(DeltaOf(config, "s2", Role::kGuard), IsNan());
}

}  // namespace
}  // namespace keval::verdict
