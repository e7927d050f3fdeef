// The figures of docs/adr/0004, and that the allowance it makes refuses what is worse.
#include "tests/support/logp_accuracy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace keval::test_support {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kLargestLogp = 20;  // About ln V + 2 + 4 * 2: V = 50257, logits of deviation 2, 4096 targets.

struct Sums {
  std::vector<double> got;
  std::vector<double> want;
};

// Logits of deviation 2 as a GEMM that adds its products one after the other makes them, in float32 with one rounding
// each, and what they should be. Offset so that the largest |value| is about kLargestLogp, as logp's is.
Sums SequentialSums(std::size_t count, int width) {
  std::mt19937_64 generator(2026);
  std::normal_distribution<float> normal;
  const float scale = 2 / std::sqrt(static_cast<float>(width));
  Sums sums;
  for (std::size_t i = 0; i < count; ++i) {
    float sum = 0;
    double exact = 0;
    for (int k = 0; k < width; ++k) {
      const float a = normal(generator);
      const float b = normal(generator) * scale;
      sum = std::fma(a, b, sum);
      exact += static_cast<double>(a) * static_cast<double>(b);
    }
    sums.got.push_back(static_cast<double>(sum));
    sums.want.push_back(exact);
  }
  return sums;
}

TEST(LogpAccuracyTest, ASequentialSumOf2048ProductsIsBeyondC2InSomeTokens) {
  const Sums sums = SequentialSums(4096, 2048);
  const LogpAccuracy accuracy = MeasureLogp(sums.got, sums.want, kLargestLogp, 2048);
  EXPECT_NEAR(accuracy.limit, 9.54e-6, 1e-8);
  EXPECT_EQ(accuracy.growth, 1);
  EXPECT_NEAR(accuracy.hard_limit, 2 * accuracy.limit, 1e-12);
  EXPECT_NEAR(accuracy.rms, 0.29 * std::ldexp(1.0, -24) * 2 * std::sqrt(2048), 0.15e-6);  // 1.6e-6.
  EXPECT_GE(accuracy.beyond, 1);
  EXPECT_THAT(ProblemWith(accuracy), IsEmpty());
}

TEST(LogpAccuracyTest, At4096ProductsTheErrorIsLargerByItsSquareRoot) {
  const Sums sums = SequentialSums(2048, 4096);
  const LogpAccuracy accuracy = MeasureLogp(sums.got, sums.want, kLargestLogp, 4096);
  EXPECT_NEAR(accuracy.growth, std::sqrt(2), 1e-12);
  EXPECT_NEAR(accuracy.rms, 2.3e-6, 0.2e-6);
  EXPECT_THAT(ProblemWith(accuracy), IsEmpty());
}

TEST(LogpAccuracyTest, UpTo512ProductsTheRuleIsC2) {
  const std::vector<double> want(5000, -3);
  std::vector<double> got = want;
  const double limit = 8 * std::ldexp(1.0, -24) * 5;
  got[7] += 0.99 * limit;
  EXPECT_THAT(ProblemWith(MeasureLogp(got, want, 5, 512)), IsEmpty());
  got[7] = want[7] + 1.01 * limit;
  EXPECT_THAT(ProblemWith(MeasureLogp(got, want, 5, 512)), HasSubstr("1 of 5000 tokens beyond"));
}

TEST(LogpAccuracyTest, WhatIsWorseThanASequentialSumIsRefused) {
  const Sums sums = SequentialSums(4096, 2048);
  const auto problem = [&](const std::vector<double>& got) {
    return ProblemWith(MeasureLogp(got, sums.want, kLargestLogp, 2048));
  };
  std::vector<double> one_far_off = sums.got;
  one_far_off[100] += 3e-5;
  EXPECT_THAT(problem(one_far_off), HasSubstr("largest"));
  std::vector<double> one_nan = sums.got;
  one_nan[100] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(problem(one_nan), HasSubstr("largest nan"));
  std::vector<double> biased = sums.got;  // Every token off by a little: within C2's limit, and yet a fault.
  for (double& value : biased) value += 4e-6;
  EXPECT_THAT(problem(biased), HasSubstr("rms"));
  std::vector<double> too_many = sums.got;
  for (std::size_t i = 0; i < 10; ++i) too_many[400 * i] = sums.want[400 * i] + 1.2e-5;
  EXPECT_THAT(problem(too_many), HasSubstr("of 4096 tokens beyond"));
  std::vector<double> rounded_to_tf32 = sums.got;  // 11 bits instead of 24.
  for (double& value : rounded_to_tf32) value = std::ldexp(std::round(std::ldexp(value, 9)), -9);
  EXPECT_THAT(problem(rounded_to_tf32), HasSubstr("rms"));
}

}  // namespace
}  // namespace keval::test_support
