#include "core/verdict/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/verdict/verdict_testing.h"

namespace keval::verdict {
namespace {

using testing::ElementsAre;

std::vector<SeriesSummary> MustSummarize(const std::vector<Sample>& samples) {
  const auto outcome = Decide(samples, Config());
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  const auto summaries = Summarize(samples, Config(), *outcome);
  EXPECT_TRUE(summaries.ok()) << summaries.status();
  return *summaries;
}

TEST(Summarize, GivesMillisecondsAndStatus) {
  const auto summaries =
      MustSummarize(MakeSamples({{.name = "s1", .values = Around(.03, .0005, 6), .base_ns = 4e6},
                                 {.name = "s2", .role = Role::kGuard, .values = Around(-.02, .0005, 6)},
                                 {.name = "s3", .role = Role::kGuard, .values = Around(0, .0005, 6)},
                                 {.name = "ctl", .role = Role::kControl, .values = Around(0, .0005, 6)}}));
  ASSERT_EQ(summaries.size(), 4U);
  EXPECT_NEAR(summaries[0].base_ms, 4, 1e-9);
  EXPECT_NEAR(summaries[0].candidate_ms, 4 * std::exp(-.03), 1e-5);
  EXPECT_EQ(summaries[0].status, "improved");
  EXPECT_EQ(summaries[1].status, "regressed");
  EXPECT_EQ(summaries[2].status, "equivalent");
  EXPECT_EQ(summaries[3].status, "shown");
  EXPECT_EQ(summaries[0].quads, 18);
}

TEST(Summarize, CountsWhatThrottlingTook) {
  std::vector<Sample> samples = MakeSamples({{.name = "s1", .values = Around(.03, .0005, 6)},
                                             {.name = "ctl", .role = Role::kControl, .values = Around(0, .0005, 6)}});
  for (Sample& sample : samples) sample.throttled = sample.series == "s1" && sample.round < 2 && sample.quad == 0;
  const auto summaries = MustSummarize(samples);
  EXPECT_EQ(summaries[0].quads_dropped, 2);
  EXPECT_THAT(summaries[0].throttled_blocks, ElementsAre(4, 4));
  EXPECT_EQ(summaries[0].status, "short");
  EXPECT_EQ(summaries[1].quads_dropped, 0);
}

TEST(Summarize, ShowsAllRoundsWhereThereIsNoLook) {
  const auto summaries = MustSummarize(MakeSamples({{.name = "s1", .values = {.01, .02, .03}}}));
  EXPECT_EQ(summaries[0].status, "no_look");
  EXPECT_EQ(summaries[0].look.n, 3);
  EXPECT_NEAR(summaries[0].look.L, .02, 1e-8);
}

TEST(Summarize, TellsAFailedControlFromOneNotShown) {
  const auto summaries =
      MustSummarize(MakeSamples({{.name = "s1", .values = Around(.03, .0005, 6)},
                                 {.name = "biased", .role = Role::kControl, .values = Around(.01, .0005, 6)},
                                 {.name = "noisy", .role = Role::kControl, .values = Around(0, .03, 6)}}));
  EXPECT_EQ(summaries[1].status, "failed");
  EXPECT_EQ(summaries[2].status, "not_shown");
}

}  // namespace
}  // namespace keval::verdict
