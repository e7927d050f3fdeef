// A running job's question after each round, and the looks that samples reach.
#include <gtest/gtest.h>

#include <vector>

#include "core/verdict/verdict.h"
#include "tests/unit/verdict/verdict_testing.h"

namespace keval::verdict {
namespace {

TEST(DecideSoFar, AnswersOnlyAtALook) {
  const std::vector<Sample> all = MakeSamples(Job(.03, 0, 6));
  for (int rounds = 1; rounds <= 6; ++rounds) {
    std::vector<Sample> so_far;
    for (const Sample& sample : all) {
      if (sample.round < rounds) so_far.push_back(sample);
    }
    const auto outcome = DecideSoFar(so_far, Config(), {});
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->has_value(), rounds == 6) << rounds;
  }
}

TEST(DecideSoFar, GoesOnWhileLooksRemainAndStopsAtTheLast) {
  std::vector<MadeSeries> job = Job(0, 0, 24);
  job[0].values = Around(.005, .02, 24);
  const std::vector<Sample> all = MakeSamples(job);
  for (const int rounds : {6, 7, 10, 16, 23, 24}) {
    std::vector<Sample> so_far;
    for (const Sample& sample : all) {
      if (sample.round < rounds) so_far.push_back(sample);
    }
    const auto outcome = DecideSoFar(so_far, Config(), {});
    ASSERT_TRUE(outcome.ok());
    ASSERT_EQ(outcome->has_value(), rounds == 24) << rounds;
    if (outcome->has_value()) {
      EXPECT_EQ((*outcome)->reason, "BUDGET");
    }
  }
}

TEST(DecideSoFar, MissingRoundsWaitForTheNextLook) {
  std::vector<Sample> samples = MakeSamples(Job(.03, 0, 6));
  Lose("s2", {1, 2}, &samples);
  const auto outcome = DecideSoFar(samples, Config(), {});
  ASSERT_TRUE(outcome.ok());
  EXPECT_FALSE(outcome->has_value());
}

TEST(DecideSoFar, FailureEndsTheJobAtOnce) {
  const auto outcome = DecideSoFar(MakeSamples(Job(.03, 0, 2)), Config(), {.failure = "CANDIDATE_HUNG"});
  ASSERT_TRUE(outcome.ok());
  ASSERT_TRUE(outcome->has_value());
  EXPECT_EQ((*outcome)->verdict, "FAILED");
}

TEST(TakeLooks, ShowsEveryLookReached) {
  const auto looks = TakeLooks(MakeSamples(Job(.03, 0, 12)), Config());
  ASSERT_TRUE(looks.ok());
  ASSERT_EQ(looks->size(), 2U);
  EXPECT_EQ((*looks)[1].R, 10);
}

}  // namespace
}  // namespace keval::verdict
