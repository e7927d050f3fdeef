#include "core/verdict/measured_series.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/verdict/verdict_testing.h"

namespace keval::verdict {
namespace {

absl::StatusOr<std::vector<MeasuredSeries>> Measure(const std::vector<Sample>& samples) {
  return MeasureSeries(samples, [](std::size_t i) { return "row " + std::to_string(i); });
}

// One round whose quads have the given values.
std::vector<Sample> Round(const std::vector<double>& quad_values) {
  std::vector<Sample> samples;
  for (std::size_t quad = 0; quad < quad_values.size(); ++quad) {
    AppendQuad({.name = "s1"}, 0, static_cast<int>(quad), quad_values[quad], &samples);
  }
  return samples;
}

TEST(RoundValue, LeavesOutTheExtremesFromFiveQuadsOn) {
  const auto series = Measure(Round({.01, .09, .02, -.05, .03}));
  ASSERT_TRUE(series.ok());
  EXPECT_NEAR(*(*series)[0].rounds[0].value, .02, 1e-8);
}

TEST(RoundValue, IsThePlainMeanOfThreeOrFourQuads) {
  EXPECT_NEAR(*(*Measure(Round({.01, .09, .02, -.04})))[0].rounds[0].value, .02, 1e-8);
  EXPECT_NEAR(*(*Measure(Round({.01, .09, .02})))[0].rounds[0].value, .04, 1e-8);
}

TEST(RoundValue, DoesNotExistForTwoQuads) {
  const auto series = Measure(Round({.01, .02}));
  ASSERT_TRUE(series.ok());
  EXPECT_EQ((*series)[0].rounds[0].value, std::nullopt);
  EXPECT_EQ((*series)[0].rounds[0].quads, 2);
}

TEST(RoundValue, DropsAThrottledQuadWhole) {
  std::vector<Sample> samples = Round({.01, .09, .02, .03, .5});
  samples[4 * 4 + 1].throttled = true;  // One block of B in the quad of value .5.
  const MeasuredRound round = (*Measure(samples))[0].rounds[0];
  EXPECT_EQ(round.quads, 5);
  EXPECT_EQ(round.quads_dropped, 1);
  EXPECT_EQ(round.throttled_blocks[0], 0);
  EXPECT_EQ(round.throttled_blocks[1], 1);
  // Four valid quads are left: the plain mean, both arms of the dropped one gone.
  EXPECT_NEAR(*round.value, .0375, 1e-8);
  EXPECT_EQ(round.times_ns[0].size(), 8U);
  EXPECT_EQ(round.times_ns[1].size(), 8U);
}

TEST(RoundValue, TakesBothQuadOrders) {
  std::vector<Sample> samples = Round({.01, .02, .03});
  for (std::size_t i = 0; i < 4; ++i) {  // The first quad as BAAB, the values kept with their arms.
    samples[i].arm = i == 0 || i == 3 ? 'B' : 'A';
    samples[i].ns = std::llround(samples[i].arm == 'A' ? 1e9 : 1e9 * std::exp(-.01));
  }
  EXPECT_NEAR(*(*Measure(samples))[0].rounds[0].value, .02, 1e-8);
}

TEST(RoundValue, CancelsLinearDrift) {
  std::vector<Sample> samples;
  for (int quad = 0; quad < 3; ++quad) {
    for (int pos = 0; pos < 4; ++pos) {
      const bool is_a = pos == 0 || pos == 3;
      const double log_time = 0.01 * (4 * quad + pos) - (is_a ? 0 : 0.02);
      samples.push_back({.series = "s1",
                         .quad = quad,
                         .pos = pos,
                         .arm = is_a ? 'A' : 'B',
                         .ns = std::llround(1e9 * std::exp(log_time))});
    }
  }
  EXPECT_NEAR(*(*Measure(samples))[0].rounds[0].value, .02, 1e-8);
}

TEST(MeanRatio, IsOfSumsOverValidQuads) {
  std::vector<Sample> samples = Round({0, 0, 0, 0});
  for (Sample& sample : samples) sample.ns = sample.arm == 'A' ? 200 : 100;
  samples[1].ns = 500;           // Of B, in quad 0.
  samples[12].throttled = true;  // Quad 3 goes.
  const MeasuredRound round = (*Measure(samples))[0].rounds[0];
  EXPECT_NEAR(round.mean_ratio_log, std::log(1200.0 / 1000.0), 1e-12);
}

TEST(MeasureSeries, NamesTheRowOfAFault) {
  std::vector<Sample> samples = Round({0, 0, 0});
  samples[5].ns = 0;
  const auto series = Measure(samples);
  EXPECT_EQ(series.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(series.status().message()), testing::HasSubstr("row 5"));
}

}  // namespace
}  // namespace keval::verdict
