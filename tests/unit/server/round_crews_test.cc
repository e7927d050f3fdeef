// Which processes a round has, by device.
#include "server/worker/round_crews.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace keval::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using verdict::Role;

std::vector<server::SeriesRun> Series(const std::vector<Role>& roles) {
  std::vector<server::SeriesRun> series;
  for (const Role role : roles) {
    series.emplace_back();
    series.back().role = role;
  }
  return series;
}

TEST(RoundCrewsTest, OnAGpuThreeProcessesRunEverything) {
  const auto crews = CrewsOfRound("cuda:1", Series({Role::kPrimary, Role::kGuard, Role::kControl}));
  ASSERT_EQ(crews.size(), 1U);
  EXPECT_THAT(crews[0].seats, ElementsAre(Seat::kBase, Seat::kCandidate, Seat::kBaseCopy));
  EXPECT_THAT(crews[0].series, ElementsAre(0, 1, 2));
}

TEST(RoundCrewsTest, OnACpuAFreshPairRunsTheControlsAndNothingElse) {
  const auto crews =
      CrewsOfRound("cpu", Series({Role::kPrimary, Role::kControl, Role::kGuard, Role::kControl, Role::kPrimary}));
  ASSERT_EQ(crews.size(), 2U);
  EXPECT_THAT(crews[0].seats, ElementsAre(Seat::kBase, Seat::kCandidate));
  EXPECT_THAT(crews[0].series, ElementsAre(0, 2, 4));
  EXPECT_THAT(crews[1].seats, ElementsAre(Seat::kBase, Seat::kBaseCopy));
  EXPECT_THAT(crews[1].series, ElementsAre(1, 3));
}

TEST(RoundCrewsTest, NoProcessIsStartedForNothing) {
  EXPECT_EQ(CrewsOfRound("cpu", Series({Role::kPrimary})).size(), 1U);
  EXPECT_EQ(CrewsOfRound("cpu", Series({Role::kControl})).size(), 1U);
  EXPECT_THAT(CrewsOfRound("cpu", {}), IsEmpty());
  EXPECT_THAT(CrewsOfRound("cuda:0", {}), IsEmpty());
}

}  // namespace
}  // namespace keval::worker
