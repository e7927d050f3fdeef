// The summary of a calibration, over simulated rounds whose rates are known: from the same simulation, jobs and all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "core/verdict/calibration_job.h"
#include "core/verdict/characteristics.h"
#include "core/verdict/serial_correlation.h"
#include "core/verdict/statistics.h"

namespace keval::verdict {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;

constexpr int kRunRounds = 24;
constexpr double kSd = 0.01;
constexpr double kMargin = 0.02;

// `count` values of a stationary first-order autoregression with lag-1 correlation `rho` and standard deviation 1.
std::vector<double> Autoregression(double rho, int count, std::mt19937_64* random) {
  std::normal_distribution<double> noise(0, 1);
  std::vector<double> values;
  double value = noise(*random);
  for (int i = 0; i < count; ++i) {
    values.push_back(value);
    value = rho * value + std::sqrt(1 - rho * rho) * noise(*random);
  }
  return values;
}

// Rounds of a job whose control is quiet, so that levels alone decide.
std::vector<JobRound> SimulatedRun(double rho, std::mt19937_64* random) {
  std::normal_distribution<double> noise(0, kSd / 100);
  std::vector<JobRound> run;
  for (const double value : Autoregression(rho, kRunRounds, random)) {
    run.push_back({kSd * value, noise(*random), {}});
  }
  return run;
}

// Levels at which false calls are frequent enough to be counted.
Config LooseConfig() {
  Config config;
  config.a_sup = {0.05, 0.05, 0.05, 0.05};
  config.delta = {{"primary", kMargin}, {"guard", kMargin}};
  return config;
}

double TrueImprovedRate(double rho) {
  constexpr int kJobs = 4000;
  std::mt19937_64 random(11);
  int improved = 0;
  for (int i = 0; i < kJobs; ++i) {
    improved += DecideJob(SimulatedRun(rho, &random), LooseConfig()).call == Call::kImproved ? 1 : 0;
  }
  return static_cast<double>(improved) / kJobs;
}

// A/A rounds in runs of a job's length, each run a session of its own.
Characteristics Summarized(double rho, int runs) {
  std::mt19937_64 random(15);
  std::vector<CalibrationRound> rounds;
  for (int i = 0; i < runs; ++i) {
    for (const JobRound& round : SimulatedRun(rho, &random)) {
      rounds.push_back({.effect = 0, .started = "", .primary = round.primary, .control = round.control, .session = i});
    }
  }
  const auto shown = Characterize(rounds, {.config = LooseConfig(), .margin = kMargin, .resampled_jobs = 2000});
  EXPECT_TRUE(shown.ok()) << shown.status();
  return shown.value_or(Characteristics());
}

const JobRates& WholeJobs(const Characteristics& shown, bool resampled) {
  const auto& jobs = shown.effects.at(0).jobs;
  return *std::find_if(jobs.begin(), jobs.end(), [resampled](const JobRates& rates) {
    return rates.rounds == kRunRounds && rates.resampled == resampled;
  });
}

TEST(CalibrationRates, OfIndependentRoundsAreThoseOfTheSimulation) {
  const double truth = TrueImprovedRate(0);
  const Characteristics shown = Summarized(0, 250);
  const JobRates& disjoint = WholeJobs(shown, false);
  EXPECT_EQ(disjoint.improved.trials, 250);
  EXPECT_THAT(truth, AllOf(Ge(disjoint.improved.lo), Le(disjoint.improved.hi)));
  const JobRates& resampled = WholeJobs(shown, true);
  EXPECT_NEAR(resampled.improved.rate, truth, 0.03);
  EXPECT_NEAR(resampled.covered.rate, 0.95, 0.02);
  EXPECT_NEAR(shown.lag1.lag1, 0, 0.05);
  EXPECT_EQ(shown.lag1.pairs, 250 * (kRunRounds - 1));
  EXPECT_THAT(shown.notes, Not(Contains(HasSubstr("not independent"))));
}

TEST(CalibrationRates, OfCorrelatedRoundsAreThoseOfTheSimulationAndNotOfIndependentOnes) {
  constexpr double kRho = 0.3;
  const double truth = TrueImprovedRate(kRho);
  EXPECT_GT(truth, TrueImprovedRate(0) + 0.03) << "or this test shows nothing";
  const Characteristics shown = Summarized(kRho, 250);
  const JobRates& disjoint = WholeJobs(shown, false);
  EXPECT_THAT(truth, AllOf(Ge(disjoint.improved.lo), Le(disjoint.improved.hi)));
  const JobRates& resampled = WholeJobs(shown, true);
  EXPECT_NEAR(resampled.improved.rate, truth, 0.03);
  EXPECT_LT(resampled.covered.rate, 0.93) << "intervals are too narrow for such rounds, and the summary shows it";
  EXPECT_NEAR(shown.lag1.lag1, kRho, 0.05);
  EXPECT_GT(shown.lag1.lo, 0.2);
  EXPECT_THAT(shown.notes, Contains(HasSubstr("not independent")));
  EXPECT_GT(shown.serial_effect.reached, shown.serial_effect.level);
  EXPECT_LT(shown.serial_effect.ask_for, shown.serial_effect.level);
}

// 4000 drawn jobs tell no more of the device than the rounds that they were drawn from.
TEST(CalibrationRates, OfResampledJobsAreAsUncertainAsTheirRounds) {
  const Characteristics shown = Summarized(0, 10);
  const JobRates& disjoint = WholeJobs(shown, false);
  const JobRates& resampled = WholeJobs(shown, true);
  EXPECT_EQ(disjoint.independent_jobs, 10);
  EXPECT_EQ(resampled.independent_jobs, 10);
  EXPECT_EQ(resampled.improved.trials, 2000);
  EXPECT_GT(resampled.improved.hi - resampled.improved.lo, 0.2);
}

TEST(SerialCorrelation, ReachesTheLevelThatSimulationFinds) {
  constexpr int kRounds = 6;
  constexpr int kTests = 200000;
  constexpr double kLevel = 0.01;
  EXPECT_DOUBLE_EQ(LevelReached(0, kRounds, kLevel), kLevel);
  EXPECT_NEAR(LevelReached(0.3, kRounds, LevelToAskFor(0.3, kRounds, kLevel)), kLevel, 1e-9);
  std::mt19937_64 random(13);
  for (const double rho : {0.0, 0.3}) {
    int called = 0;
    for (int i = 0; i < kTests; ++i) {
      const std::vector<double> values = Autoregression(rho, kRounds, &random);
      const double se = SampleSd(values) / std::sqrt(kRounds);
      called += TTest(Mean(values), se, kRounds - 1).gain <= kLevel ? 1 : 0;
    }
    const double found = static_cast<double>(called) / kTests;
    EXPECT_NEAR(LevelReached(rho, kRounds, kLevel) / found, 1, 0.15) << rho;
  }
}

TEST(SerialCorrelation, ItsIntervalHoldsTheTruthAsOftenAsItSays) {
  constexpr int kSets = 500;
  std::mt19937_64 random(16);
  for (const double rho : {0.0, 0.3}) {
    int held = 0;
    for (int i = 0; i < kSets; ++i) {
      std::vector<std::vector<double>> runs;
      for (int run = 0; run < 12; ++run) runs.push_back(Autoregression(rho, kRunRounds, &random));
      const SerialCorrelation found = Lag1({runs});
      held += found.lo <= rho && rho <= found.hi ? 1 : 0;
    }
    EXPECT_NEAR(static_cast<double>(held) / kSets, 0.95, 0.03) << rho;
  }
}

TEST(SerialCorrelation, CountsPairsWithinRunsAndKindsByTheirOwnMean) {
  // Two kinds far apart: their distance is no correlation. In each, what follows is as far on the other side.
  const SerialCorrelation alternating = Lag1({{{1, -1, 1, -1}, {1, -1}}, {{101, 99, 101, 99}}});
  EXPECT_EQ(alternating.pairs, 7);
  EXPECT_NEAR(alternating.lag1, -1, 1e-5);
  EXPECT_TRUE(std::isnan(Lag1({{{1, 2}, {3, 4}, {5, 6}}}).lag1)) << "3 pairs are too few";
  EXPECT_TRUE(std::isnan(Lag1({{{1, 1, 1, 1, 1, 1}}}).lag1)) << "no spread";
  EXPECT_EQ(Lag1({}).hi, 1);
}

}  // namespace
}  // namespace keval::verdict
