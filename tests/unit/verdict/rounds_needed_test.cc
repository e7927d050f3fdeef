#include "core/verdict/rounds_needed.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/verdict/statistics.h"

namespace keval::verdict {
namespace {

SeriesLook Series(const std::string& name, Role role, double L, double sd) {
  return {.series = name, .role = role, .delta = role == Role::kControl ? 0 : .01, .n = 24, .L = L, .sd = sd};
}

// By trying every R in turn.
int LeastByHand(double p, double sd, double room) {
  for (int R = 2; R <= 200; ++R) {
    if (TQuantile(R - 1, p) * sd / std::sqrt(R) < room) return R;
  }
  return kMoreThanMaxRounds;
}

TEST(RoundsNeeded, ForAGainFollowsThePrimary) {
  const Look look{.series = {Series("s1", Role::kPrimary, .02, .03), Series("s2", Role::kGuard, 0, .005),
                             Series("ctl", Role::kControl, 0, .005)}};
  const RoundsNeeded needed = EstimateRoundsNeeded(look, Config());
  EXPECT_EQ(needed.goal, "IMPROVED");
  EXPECT_EQ(needed.limiting_series, "s1");
  EXPECT_EQ(needed.rounds, LeastByHand(1 - .003, .03, .02));
  EXPECT_GT(needed.rounds, 10);
}

TEST(RoundsNeeded, ForEquivalenceFollowsTheSeriesNearestItsMargin) {
  const Look look{.series = {Series("s1", Role::kPrimary, -.001, .01), Series("s2", Role::kGuard, -.006, .01),
                             Series("ctl", Role::kControl, 0, .005)}};
  const RoundsNeeded needed = EstimateRoundsNeeded(look, Config());
  EXPECT_EQ(needed.goal, "EQUIVALENT");
  EXPECT_EQ(needed.limiting_series, "s2");
  EXPECT_EQ(needed.rounds, LeastByHand(1 - .015, .01, .004));
}

TEST(RoundsNeeded, CanBeLimitedByTheControl) {
  const Look look{.series = {Series("s1", Role::kPrimary, .004, .001), Series("ctl", Role::kControl, .0005, .005)}};
  const RoundsNeeded needed = EstimateRoundsNeeded(look, Config());
  // Equivalence asks the control to be within 1 %, a gain within 0.2 %: the first takes fewer rounds.
  EXPECT_EQ(needed.goal, "EQUIVALENT");
  const Look sharper{.series = {Series("s1", Role::kPrimary, .0095, .002), Series("ctl", Role::kControl, .0005, .02)}};
  const RoundsNeeded by_control = EstimateRoundsNeeded(sharper, Config());
  EXPECT_EQ(by_control.limiting_series, "ctl");
  EXPECT_EQ(by_control.goal, "IMPROVED");
  EXPECT_EQ(by_control.rounds, LeastByHand(.95, .02, .0095 / 2 - .0005));
}

TEST(RoundsNeeded, SaysMoreThanTwoHundred) {
  const Look look{.series = {Series("s1", Role::kPrimary, .011, .5), Series("ctl", Role::kControl, 0, .005)}};
  EXPECT_EQ(EstimateRoundsNeeded(look, Config()).rounds, kMoreThanMaxRounds);
}

TEST(RoundsNeeded, GuardBeyondItsMarginAllowsNoGoal) {
  const Look look{.series = {Series("s1", Role::kPrimary, .03, .001), Series("s2", Role::kGuard, -.012, .03),
                             Series("ctl", Role::kControl, 0, .001)}};
  const RoundsNeeded needed = EstimateRoundsNeeded(look, Config());
  EXPECT_EQ(needed.rounds, kMoreThanMaxRounds);
  EXPECT_EQ(needed.limiting_series, "s2");
}

TEST(RoundsNeeded, IsNotEstimatedWithoutASpread) {
  Look look{.series = {Series("s1", Role::kPrimary, .03, .001)}};
  look.series[0].n = 1;
  EXPECT_EQ(EstimateRoundsNeeded(look, Config()).rounds, 0);
  EXPECT_EQ(EstimateRoundsNeeded(look, Config()).limiting_series, "s1");
}

}  // namespace
}  // namespace keval::verdict
