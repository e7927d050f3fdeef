// The rows of the decision table, one by one, over samples made to meet them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/field_error.h"
#include "core/verdict/verdict.h"
#include "tests/unit/verdict/verdict_testing.h"

namespace keval::verdict {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Outcome MustDecide(const std::vector<Sample>& samples, const Config& config = {}, const Evidence& evidence = {}) {
  const auto outcome = Decide(samples, config, evidence);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return outcome.ok() ? *outcome : Outcome();
}

void Throttle(const std::string& series, char arm, int quads, std::vector<Sample>* samples) {
  for (Sample& sample : *samples) {
    if (sample.series == series && sample.arm == arm && sample.round * 3 + sample.quad < quads && sample.pos < 2) {
      sample.throttled = true;
    }
  }
}

TEST(Decide, Row1ContractFailedNeedsNoSamples) {
  const Outcome outcome = MustDecide({}, {}, {.contract_failure = "C3, candidate"});
  EXPECT_EQ(outcome.verdict, "CONTRACT_FAILED");
  EXPECT_EQ(outcome.reason, "C3, candidate");
  EXPECT_THAT(outcome.detail, HasSubstr("C3, candidate"));
  EXPECT_THAT(outcome.looks, IsEmpty());
}

TEST(Decide, Row1ComesBeforeWhatTheTimesSay) {
  const Outcome outcome =
      MustDecide(MakeSamples(Job(.03, 0)), {}, {.contract_failure = "C1", .failure = "CANDIDATE_CRASHED"});
  EXPECT_EQ(outcome.verdict, "CONTRACT_FAILED");
  ASSERT_EQ(outcome.looks.size(), 1U);  // Shown, not judged.
  EXPECT_EQ(outcome.looks[0].candidate, "IMPROVED");
  EXPECT_EQ(outcome.stop_look, std::nullopt);
}

TEST(Decide, Row2FailedGivesTheReason) {
  const Outcome outcome = MustDecide({}, {}, {.failure = "CANDIDATE_CRASHED"});
  EXPECT_EQ(outcome.verdict, "FAILED");
  EXPECT_EQ(outcome.reason, "CANDIDATE_CRASHED");
}

TEST(Decide, Row3ThrottlingOfOneArmAlone) {
  std::vector<Sample> samples = MakeSamples(Job(.03, 0, 10));
  Throttle("s1", 'B', 8, &samples);  // Two-sided p of 8 to 0: 2/256 < .01.
  const Outcome outcome = MustDecide(samples);
  EXPECT_EQ(outcome.verdict, "INCONCLUSIVE");
  EXPECT_EQ(outcome.reason, "THROTTLE_ASYMMETRY");
  EXPECT_THAT(outcome.throttled_blocks, ElementsAre(0, 8));
  EXPECT_NEAR(outcome.throttle_asym_p, 2.0 / 256, 1e-15);
  EXPECT_THAT(outcome.looks, IsEmpty());
  EXPECT_EQ(outcome.stop_look, std::nullopt);
  EXPECT_FALSE(outcome.non_inferior);
}

TEST(Decide, Row3LetsSevenToNoneThrough) {
  std::vector<Sample> samples = MakeSamples(Job(.03, 0, 10));
  Throttle("ctl", 'B', 7, &samples);  // 2/128 > .01; the control's blocks count too.
  const Outcome outcome = MustDecide(samples);
  EXPECT_NE(outcome.reason, "THROTTLE_ASYMMETRY");
  EXPECT_NEAR(outcome.throttle_asym_p, 2.0 / 128, 1e-15);
}

TEST(Decide, Row4MoreThanAFifthOfAllQuadsDropped) {
  std::vector<Sample> samples = MakeSamples(Job(.03, 0, 10));  // 90 quads.
  Throttle("s1", 'A', 9, &samples);
  Throttle("s2", 'B', 9, &samples);
  EXPECT_NE(MustDecide(samples).reason, "THROTTLE_BUDGET");  // 18 of 90 are 20 %, not more.
  Throttle("s1", 'A', 10, &samples);
  const Outcome outcome = MustDecide(samples);
  EXPECT_EQ(outcome.reason, "THROTTLE_BUDGET");
  EXPECT_NEAR(outcome.quads_dropped, 19.0 / 90, 1e-15);
  EXPECT_THAT(outcome.looks, IsEmpty());
}

TEST(Decide, Row3And4AreJudgedOnAllRowsBeforeAnyLook) {
  std::vector<Sample> samples = MakeSamples(Job(.03, 0, 10));
  for (Sample& sample : samples) sample.throttled = sample.round >= 6 && sample.arm == 'B';
  EXPECT_EQ(MustDecide(samples).reason, "THROTTLE_ASYMMETRY");  // The first look alone would be clean.
}

TEST(Decide, Row5NoControl) {
  std::vector<MadeSeries> job = Job(.03, 0);
  job.pop_back();
  const Outcome outcome = MustDecide(MakeSamples(job));
  EXPECT_EQ(outcome.verdict, "INCONCLUSIVE");
  EXPECT_EQ(outcome.reason, "NO_CONTROL");
  EXPECT_EQ(outcome.stop_look, 6);
  EXPECT_EQ(outcome.looks[0].candidate, "IMPROVED");
  EXPECT_FALSE(outcome.looks[0].control_fail);
  EXPECT_FALSE(outcome.looks[0].control_ok);
  EXPECT_FALSE(outcome.non_inferior);
}

TEST(Decide, Row5OneFailingControlFailsAll) {
  std::vector<MadeSeries> job = Job(.03, 0);
  job.push_back({.name = "ctl2", .role = Role::kControl, .values = Around(.004, kSpread, 6)});
  const Outcome outcome = MustDecide(MakeSamples(job));
  EXPECT_EQ(outcome.reason, "CONTROL_FAILED");
  EXPECT_TRUE(outcome.looks[0].control_fail);
  EXPECT_FALSE(outcome.looks[0].series[2].control_failed);
  EXPECT_TRUE(outcome.looks[0].series[3].control_failed);
}

TEST(Decide, Row5LetsABiasUnderTheFloorPass) {
  std::vector<MadeSeries> job = Job(.03, 0);
  job[2].values = Around(.0019, 1e-5, 6);  // Excludes 0 by far, but is at most 0.2 %.
  EXPECT_EQ(MustDecide(MakeSamples(job)).verdict, "IMPROVED");
}

TEST(Decide, Row6Regressed) {
  const Outcome outcome = MustDecide(MakeSamples(Job(.03, -.02)));
  EXPECT_EQ(outcome.verdict, "REGRESSED");
  EXPECT_THAT(outcome.looks[0].regressed, ElementsAre("s2"));
  EXPECT_EQ(outcome.stop_look, 6);
  EXPECT_THAT(outcome.detail, HasSubstr("s2"));
}

TEST(Decide, Row6NeedsTheMarginToo) {
  // Surely slower, but by less than δ.
  const Outcome outcome = MustDecide(MakeSamples(Job(.03, -.008)));
  EXPECT_THAT(outcome.looks[0].regressed, IsEmpty());
  EXPECT_LT(outcome.looks[0].series[1].p_loss, 1e-5);
  EXPECT_EQ(outcome.verdict, "IMPROVED");
}

TEST(Decide, Row6ListsInFileOrder) {
  std::vector<MadeSeries> job = Job(-.015, -.05);
  EXPECT_THAT(MustDecide(MakeSamples(job)).looks[0].regressed, ElementsAre("s1", "s2"));
}

TEST(Decide, ControlNotShownMeansTheNextLook) {
  std::vector<MadeSeries> job = Job(.03, -.02);
  job[2].values = Around(0, .02, 6);  // |L| + t(.95)·se is about 1.8 %, more than δ.
  const Outcome outcome = MustDecide(MakeSamples(job));
  EXPECT_EQ(outcome.looks[0].candidate, "REGRESSED");
  EXPECT_FALSE(outcome.looks[0].control_fail);
  EXPECT_FALSE(outcome.looks[0].control_ok);
  EXPECT_EQ(outcome.reason, "BUDGET");
  EXPECT_THAT(outcome.detail, HasSubstr("control is not shown"));
}

TEST(Decide, GainMustBeTwiceWhatTheControlCanHide) {
  std::vector<MadeSeries> job = Job(.006, 0);
  job[2].values = Around(0, .004, 6);  // Shown within about 0.36 %: under δ, not under half of 0.6 %.
  const Outcome outcome = MustDecide(MakeSamples(job));
  EXPECT_EQ(outcome.looks[0].candidate, "IMPROVED");
  EXPECT_NEAR(outcome.looks[0].eps, .003, 1e-6);
  EXPECT_FALSE(outcome.looks[0].control_ok);
  EXPECT_EQ(outcome.verdict, "INCONCLUSIVE");
}

// Every repetition as in `Job`, but the candidate's last of three is slow in every block: medians don't see it.
std::vector<Sample> WithSlowTail(double factor) {
  std::vector<Sample> samples;
  for (const Sample& sample : MakeSamples(Job(.03, 0))) {
    for (int rep = 0; rep < 3; ++rep) {
      samples.push_back(sample);
      samples.back().rep = rep;
      if (rep == 2 && sample.arm == 'B' && sample.series == "s1") {
        samples.back().ns = static_cast<std::int64_t>(static_cast<double>(sample.ns) * factor);
      }
    }
  }
  return samples;
}

TEST(Decide, Row7TailConflict) {
  const Outcome outcome = MustDecide(WithSlowTail(1.2));
  EXPECT_EQ(outcome.verdict, "INCONCLUSIVE");
  EXPECT_EQ(outcome.reason, "TAIL_CONFLICT");
  EXPECT_EQ(outcome.looks[0].candidate, "TAIL");
  EXPECT_NEAR(outcome.looks[0].eps, .01, 1e-6);  // min(δ, half of 3 %).
  EXPECT_EQ(MustDecide(WithSlowTail(1.05)).verdict, "IMPROVED");
}

TEST(Decide, Row7bMemory) {
  const std::vector<Sample> samples = MakeSamples(Job(.03, 0));
  const Outcome outcome = MustDecide(samples, {}, {.memory = Memory::kNotMet});
  EXPECT_EQ(outcome.verdict, "INCONCLUSIVE");
  EXPECT_EQ(outcome.reason, "MEMORY");
  EXPECT_EQ(RuleName(outcome.rule), "7b");
  EXPECT_EQ(MustDecide(samples, {}, {.memory = Memory::kMet}).verdict, "IMPROVED");
  EXPECT_EQ(MustDecide(samples).verdict, "IMPROVED");
  // Only a gain asks for it.
  EXPECT_EQ(MustDecide(MakeSamples(Job(0, 0)), {}, {.memory = Memory::kNotMet}).verdict, "EQUIVALENT");
}

TEST(Decide, Row8Improved) {
  const Outcome outcome = MustDecide(MakeSamples(Job(.03, 0)));
  EXPECT_EQ(outcome.verdict, "IMPROVED");
  EXPECT_EQ(outcome.reason, "");
  EXPECT_EQ(outcome.stop_look, 6);
  EXPECT_TRUE(outcome.non_inferior);
  EXPECT_EQ(outcome.memory, Memory::kNotRecorded);
}

TEST(Decide, Row8NeedsEveryPrimary) {
  std::vector<MadeSeries> job = Job(.03, 0);
  job.push_back({.name = "s3", .values = Around(0, kSpread, 6)});
  EXPECT_NE(MustDecide(MakeSamples(job)).verdict, "IMPROVED");
}

TEST(Decide, Row8NeedsFourFifthsOfTheRounds) {
  std::vector<MadeSeries> job = Job(0, 0);
  Config config;
  config.a_sup = {.2, .2, .2, .2};  // So that two bad rounds leave the interval above 0.
  job[0].values = {.03, .03, .03, .03, -.001, -.001};
  const Outcome outcome = MustDecide(MakeSamples(job), config);
  EXPECT_GT(outcome.looks[0].series[0].sup_lo, 0);
  EXPECT_EQ(outcome.looks[0].series[0].pos, 4);
  EXPECT_NE(outcome.verdict, "IMPROVED");
  job[0].values[5] = .001;
  EXPECT_EQ(MustDecide(MakeSamples(job), config).verdict, "IMPROVED");
}

TEST(Decide, Row9Equivalent) {
  const Outcome outcome = MustDecide(MakeSamples(Job(.0001, 0)));
  EXPECT_EQ(outcome.verdict, "EQUIVALENT");
  EXPECT_TRUE(outcome.non_inferior);
}

TEST(Decide, Row10GoesOnToTheNextLook) {
  std::vector<MadeSeries> job = Job(.002, 0, 10);
  job[0].values = {.012, -.008, .012, -.008, .012, -.008, .002, .002, .002, .002};
  const Outcome outcome = MustDecide(MakeSamples(job));
  ASSERT_EQ(outcome.looks.size(), 2U);
  EXPECT_EQ(outcome.looks[0].candidate, "");
  EXPECT_EQ(outcome.verdict, "EQUIVALENT");
  EXPECT_EQ(outcome.stop_look, 10);
}

TEST(Decide, Row11BudgetNamesRoundsAndNextStep) {
  std::vector<MadeSeries> job = Job(0, 0, 24);
  job[0].values = Around(.005, .02, 24);
  const Outcome outcome = MustDecide(MakeSamples(job));
  EXPECT_EQ(outcome.reason, "BUDGET");
  EXPECT_EQ(outcome.stop_look, 24);
  EXPECT_EQ(outcome.looks.size(), 4U);
  EXPECT_EQ(outcome.rounds_needed.limiting_series, "s1");
  EXPECT_GT(outcome.rounds_needed.rounds, 24);
  EXPECT_THAT(outcome.detail, HasSubstr("Next step"));
  EXPECT_THAT(outcome.detail, HasSubstr("limited by s1"));
}

TEST(Decide, BudgetStopsAtTheLastConfiguredLook) {
  // 8 rounds of looks 6, 10, 16, 24: judged at 6.
  const Outcome outcome = MustDecide(MakeSamples([] {
    auto job = Job(0, 0, 8);
    job[0].values = Around(.005, .02, 8);
    return job;
  }()));
  ASSERT_EQ(outcome.looks.size(), 1U);
  EXPECT_EQ(outcome.looks[0].R, 6);
  EXPECT_EQ(outcome.looks[0].series[0].n, 6);
  EXPECT_EQ(outcome.reason, "BUDGET");
  EXPECT_EQ(outcome.stop_look, 24);
}

TEST(Decide, FewerRoundsThanTheFirstLookAreBudgetWithoutLooks) {
  const Outcome outcome = MustDecide(MakeSamples(Job(.03, 0, 5)));
  EXPECT_EQ(outcome.verdict, "INCONCLUSIVE");
  EXPECT_EQ(outcome.reason, "BUDGET");
  EXPECT_THAT(outcome.looks, IsEmpty());
  EXPECT_EQ(outcome.stop_look, 24);
  EXPECT_FALSE(outcome.non_inferior);
  EXPECT_THAT(outcome.detail, HasSubstr("Only 5 of the 6 rounds"));
}

// What a job that ran out of device seconds says: no "collect on", which it may not.
TEST(Decide, SaysWhatMoreRoundsTake) {
  const Evidence evidence{.for_more_rounds = "raise it"};
  std::vector<MadeSeries> job = Job(0, 0, 8);
  job[0].values = Around(.005, .02, 8);
  const auto undecided = Decide(MakeSamples(job), Config{}, evidence);
  ASSERT_TRUE(undecided.ok()) << undecided.status();
  EXPECT_EQ(undecided->rounds, 8);
  EXPECT_THAT(undecided->detail, HasSubstr("Next step: raise it, so that 24 rounds fit, the last look"));
  const auto early = Decide(MakeSamples(Job(.03, 0, 5)), Config{}, evidence);
  ASSERT_TRUE(early.ok()) << early.status();
  EXPECT_THAT(early->detail, HasSubstr("Next step: raise it, so that 6 rounds fit, the first look."));
  Config soon;
  soon.looks.front() = 3;
  const auto short_look = Decide(MakeSamples(Job(.03, 0, 4)), soon, evidence);
  ASSERT_TRUE(short_look.ok()) << short_look.status();
  EXPECT_EQ(short_look->reason, "MISSING_ROUNDS");
  EXPECT_THAT(short_look->detail, HasSubstr("Next step: raise it, so that 24 rounds fit, the last look."));
}

TEST(Decide, NonInferiorIsKnownAtBudgetToo) {
  std::vector<MadeSeries> job = Job(0, 0, 24);
  job[0].values = Around(.008, .012, 24);  // Neither surely positive in 80 % of rounds, nor below δ.
  const Outcome outcome = MustDecide(MakeSamples(job));
  EXPECT_EQ(outcome.reason, "BUDGET");
  EXPECT_TRUE(outcome.non_inferior);
  EXPECT_EQ(ExitCode(outcome.verdict, outcome.reason, "", outcome.non_inferior, Require::kNoRegression), 0);
}

TEST(Decide, ShortSeriesMakesNoVerdict) {
  std::vector<Sample> samples = MakeSamples(Job(.03, 0, 6));
  Lose("s2", {1, 2}, &samples);  // n = 4 < ⌈0.8·6⌉ = 5.
  const Outcome outcome = MustDecide(samples);
  EXPECT_EQ(outcome.verdict, "INCONCLUSIVE");
  EXPECT_EQ(outcome.reason, "MISSING_ROUNDS");
  EXPECT_EQ(outcome.looks[0].candidate, "");
  EXPECT_TRUE(outcome.looks[0].series[1].is_short);
  EXPECT_THAT(outcome.detail, HasSubstr("s2 has a value in 4 of 6 rounds"));
  EXPECT_THAT(outcome.detail, Not(HasSubstr("s1 has")));
  EXPECT_FALSE(outcome.non_inferior);
}

TEST(Decide, FourFifthsOfTheRoundsAreEnough) {
  std::vector<Sample> samples = MakeSamples(Job(.03, 0, 6));
  Lose("s2", {1}, &samples);
  const Outcome outcome = MustDecide(samples);
  EXPECT_EQ(outcome.verdict, "IMPROVED");
  EXPECT_EQ(outcome.looks[0].series[1].n, 5);
  EXPECT_EQ(outcome.looks[0].series[1].df, 4);
  EXPECT_THAT(outcome.looks[0].series[1].rounds, ElementsAre(0, 2, 3, 4, 5));
}

TEST(Decide, ShortLookIsPassedAndTheNextOneDecides) {
  std::vector<Sample> samples = MakeSamples(Job(.03, 0, 10));
  Lose("ctl", {0, 1}, &samples);  // 4 of 6, then 8 of 10.
  const Outcome outcome = MustDecide(samples);
  EXPECT_EQ(outcome.verdict, "IMPROVED");
  EXPECT_EQ(outcome.stop_look, 10);
}

TEST(Decide, ControlThatFailsAtAShortLookStillFails) {
  std::vector<MadeSeries> job = Job(.03, 0, 6);
  job[2].values = Around(.01, kSpread, 6);
  std::vector<Sample> samples = MakeSamples(job);
  Lose("s2", {1, 2}, &samples);
  EXPECT_EQ(MustDecide(samples).reason, "CONTROL_FAILED");
}

TEST(Decide, RoundsThatAreNotInTheFileAreMissingToo) {
  std::vector<Sample> samples;
  for (const Sample& sample : MakeSamples(Job(.03, 0, 6))) {
    if (sample.series != "s2" || sample.round > 3) samples.push_back(sample);
  }
  const Outcome outcome = MustDecide(samples);
  EXPECT_EQ(outcome.reason, "MISSING_ROUNDS");
  EXPECT_EQ(outcome.looks[0].series[1].n, 2);
}

TEST(Decide, ALookOfThreeRoundsSaysThatItCannotDecide) {
  Config config;
  config.looks = {3};
  config.a_sup = config.a_eq = config.a_ctl = {kMinLevel};  // The least level has its quantiles too.
  const Outcome outcome = MustDecide(MakeSamples(Job(.03, 0, 3)), config);
  EXPECT_EQ(outcome.reason, "MISSING_ROUNDS");
  EXPECT_THAT(outcome.detail, HasSubstr("takes at least 4"));
}

TEST(Decide, SeriesWithoutAnyValueIsNamed) {
  std::vector<Sample> samples = MakeSamples(Job(.03, 0, 6));
  for (Sample& sample : samples) sample.throttled = sample.series == "ctl" && sample.quad == 0;
  const Outcome outcome = MustDecide(samples);
  EXPECT_EQ(outcome.reason, "MISSING_ROUNDS");
  EXPECT_THAT(outcome.detail, HasSubstr("ctl has a value in 0 of 6 rounds"));
}

TEST(Decide, WithoutSpreadTheIntervalIsAPoint) {
  std::vector<MadeSeries> job = Job(0, 0);
  for (MadeSeries& series : job) series.values.assign(6, 0);
  job[0].base_ns = 1000;
  job[0].values.assign(6, .03);
  const Outcome outcome = MustDecide(MakeSamples(job));
  EXPECT_EQ(outcome.verdict, "IMPROVED");
  const SeriesLook& flat = outcome.looks[0].series[1];
  EXPECT_EQ(flat.se, 0);
  EXPECT_EQ(flat.sup_lo, 0);
  EXPECT_EQ(flat.sup_hi, 0);
  EXPECT_EQ(flat.p_gain, .5);
}

TEST(Decide, MarginByNameWinsOverItsRole) {
  Config config;
  config.delta = {{"primary", .01}, {"guard", .01}, {"s2", .05}};
  EXPECT_EQ(MustDecide(MakeSamples(Job(.03, -.02)), config).verdict, "IMPROVED");
}

TEST(Decide, SeriesWithoutAMarginIsNamed) {
  Config config;
  config.delta = {{"primary", .01}};
  const auto outcome = Decide(MakeSamples(Job(.03, 0)), config);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetFieldViolation(outcome.status())->field, "delta.s2");
}

TEST(Decide, MarginForAnUnknownNameIsRefused) {
  Config config;
  config.delta["s3"] = .01;
  const auto outcome = Decide(MakeSamples(Job(.03, 0)), config);
  EXPECT_EQ(GetFieldViolation(outcome.status())->field, "delta.s3");
}

TEST(Decide, SamplesWithoutAPrimaryAreRefused) {
  std::vector<MadeSeries> job = Job(.03, 0);
  job.erase(job.begin());
  EXPECT_EQ(Decide(MakeSamples(job), Config()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Decide({}, Config()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Decide, EveryInconclusiveSaysTheNextStep) {
  std::vector<MadeSeries> no_control = Job(.03, 0);
  no_control.pop_back();
  std::vector<MadeSeries> failed_control = Job(.03, 0);
  failed_control[2].values = Around(.01, kSpread, 6);
  std::vector<Sample> lost = MakeSamples(Job(.03, 0));
  Lose("s2", {1, 2}, &lost);
  std::vector<Sample> hot = MakeSamples(Job(.03, 0));
  for (Sample& sample : hot) sample.throttled = sample.quad == 0;
  std::vector<Sample> uneven = MakeSamples(Job(.03, 0));
  Throttle("s1", 'B', 8, &uneven);
  const std::vector<std::pair<std::string, Outcome>> outcomes = {
      {"NO_CONTROL", MustDecide(MakeSamples(no_control))},
      {"CONTROL_FAILED", MustDecide(MakeSamples(failed_control))},
      {"MISSING_ROUNDS", MustDecide(lost)},
      {"THROTTLE_BUDGET", MustDecide(hot)},
      {"THROTTLE_ASYMMETRY", MustDecide(uneven)},
      {"TAIL_CONFLICT", MustDecide(WithSlowTail(1.2))},
      {"MEMORY", MustDecide(MakeSamples(Job(.03, 0)), {}, {.memory = Memory::kNotMet})},
      {"BUDGET", MustDecide(MakeSamples(Job(.03, 0, 5)))}};
  for (const auto& [reason, outcome] : outcomes) {
    EXPECT_EQ(outcome.verdict, "INCONCLUSIVE");
    EXPECT_EQ(outcome.reason, reason);
    EXPECT_THAT(outcome.detail, HasSubstr("Next step")) << reason;
  }
}

TEST(Decide, DetailCarriesNoControlSequenceOfAName) {
  std::vector<MadeSeries> job = Job(-.03, 0);
  job[0].name = "red \x1B[31mfail";
  Config config;
  const Outcome outcome = MustDecide(MakeSamples(job), config);
  EXPECT_EQ(outcome.looks[0].regressed[0], job[0].name);
  EXPECT_THAT(outcome.detail, HasSubstr("red \\u001B[31mfail"));
  EXPECT_THAT(outcome.detail, Not(HasSubstr("\x1B")));
}

}  // namespace
}  // namespace keval::verdict
