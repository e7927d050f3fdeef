#include "core/verdict/calibration_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace keval::verdict {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kStepSeconds = 10;

// Rounds ten seconds apart from `start` on, whose primaries count up from 0.
std::vector<CalibrationRound> Rounds(int count, double effect = 0, int start_seconds = 0) {
  std::vector<CalibrationRound> rounds;
  for (int i = 0; i < count; ++i) {
    const absl::Time started = absl::FromUnixSeconds(1700000000 + start_seconds + kStepSeconds * i);
    rounds.push_back(
        {effect, absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", started, absl::UTCTimeZone()), static_cast<double>(i), 0});
  }
  return rounds;
}

std::vector<std::size_t> Sizes(const Runs& runs) {
  std::vector<std::size_t> sizes;
  for (const auto& run : runs) sizes.push_back(run.size());
  return sizes;
}

void Append(const std::vector<CalibrationRound>& more, std::vector<CalibrationRound>* rounds) {
  rounds->insert(rounds->end(), more.begin(), more.end());
}

TEST(SplitIntoRuns, KeepsTogetherWhatFollowsEachOther) {
  EXPECT_THAT(SplitIntoRuns({}), IsEmpty());
  EXPECT_THAT(Sizes(SplitIntoRuns(Rounds(7)).at(0)), ElementsAre(7));
}

TEST(SplitIntoRuns, EndsARunAtAnotherEffect) {
  std::vector<CalibrationRound> rounds = Rounds(6);
  Append(Rounds(4, 0.01, 60), &rounds);
  Append(Rounds(5, 0, 100), &rounds);
  const auto runs = SplitIntoRuns(rounds);
  EXPECT_THAT(Sizes(runs.at(0)), ElementsAre(6, 5));
  EXPECT_THAT(Sizes(runs.at(0.01)), ElementsAre(4));
}

TEST(SplitIntoRuns, EndsARunWhereTimePassedOrWentBackButNotAtOneLostRound) {
  std::vector<CalibrationRound> rounds = Rounds(6);
  Append(Rounds(6, 0, 80), &rounds);  // 30 s after the last one instead of 10.
  EXPECT_THAT(Sizes(SplitIntoRuns(rounds).at(0)), ElementsAre(12));
  Append(Rounds(3, 0, 3600), &rounds);
  EXPECT_THAT(Sizes(SplitIntoRuns(rounds).at(0)), ElementsAre(12, 3));
  Append(Rounds(2, 0, 200), &rounds);
  EXPECT_THAT(Sizes(SplitIntoRuns(rounds).at(0)), ElementsAre(12, 3, 2));
}

TEST(SplitIntoRuns, EndsARunAtAnotherSession) {
  std::vector<CalibrationRound> rounds = Rounds(10);
  for (std::size_t i = 5; i < rounds.size(); ++i) rounds[i].session = 1;
  const auto runs = SplitIntoRuns(rounds);
  EXPECT_THAT(Sizes(runs.at(0)), ElementsAre(5, 5));
  EXPECT_THAT(DisjointWindows(runs.at(0), 6), IsEmpty()) << "a job would join two devices";
}

TEST(SplitIntoRuns, MakesNothingOfTimesThatCantBeRead) {
  std::vector<CalibrationRound> rounds = Rounds(6);
  rounds[2].started = "yesterday";
  rounds[3].started = "";
  EXPECT_THAT(Sizes(SplitIntoRuns(rounds).at(0)), ElementsAre(6));
}

TEST(DisjointWindows, TakesEachRoundOnceAndStaysInARun) {
  std::vector<CalibrationRound> rounds = Rounds(13);
  Append(Rounds(5, 0.01, 130), &rounds);
  const Runs runs = SplitIntoRuns(rounds).at(0);
  const auto windows = DisjointWindows(runs, 6);
  ASSERT_THAT(windows, SizeIs(2));
  EXPECT_EQ(windows[0].front().primary, 0);
  EXPECT_EQ(windows[1].front().primary, 6);
  EXPECT_EQ(windows[1].back().primary, 11);
}

TEST(BlockSource, DrawsNothingButRoundsThatFollowEachOther) {
  std::vector<CalibrationRound> rounds = Rounds(8);
  Append(Rounds(3, 0.01, 80), &rounds);
  Append(Rounds(5, 0, 110), &rounds);  // Too short for a block of six.
  const Runs runs = SplitIntoRuns(rounds).at(0);
  const BlockSource source(runs, 6);
  ASSERT_FALSE(source.empty());
  EXPECT_EQ(source.rounds(), 8);
  EXPECT_DOUBLE_EQ(source.mean(), 3.5);  // Of the blocks that start at 0, 1 and 2.
  Draws draws(1);
  std::vector<JobRound> job;
  std::set<double> starts;
  for (int i = 0; i < 60; ++i) {
    source.DrawJob(16, &draws, &job);
    ASSERT_THAT(job, SizeIs(16));
    for (std::size_t j = 0; j < job.size(); ++j) {
      if (j % 6 == 0) continue;  // A block's first.
      EXPECT_EQ(job[j].primary, job[j - 1].primary + 1);
    }
    starts.insert(job[0].primary);
  }
  EXPECT_THAT(starts, ElementsAre(0, 1, 2));
  EXPECT_TRUE(BlockSource(runs, 9).empty());
  const Runs none;
  EXPECT_TRUE(BlockSource(none, 6).empty());
}

}  // namespace
}  // namespace keval::verdict
