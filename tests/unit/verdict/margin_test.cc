#include "core/verdict/margin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace keval::verdict {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(CalibrationMeans, TakesEachDisjointSixAndLeavesTheRest) {
  const std::vector<double> D = {1, 2, 3, 4, 5, 6, -1, -1, -1, -1, -1, -1, 100};
  EXPECT_THAT(CalibrationMeans(D), ElementsAre(DoubleNear(3.5, 1e-12), DoubleNear(-1, 1e-12)));
  EXPECT_THAT(CalibrationMeans({1, 2, 3, 4, 5}), IsEmpty());
}

TEST(CalibratedMargin, IsClamped) {
  EXPECT_EQ(CalibratedMargin({}), 0.01);
  EXPECT_EQ(CalibratedMargin({0.0001, -0.0002}), 0.005);
  EXPECT_EQ(CalibratedMargin({0.0001, -0.5}), 0.02);
}

TEST(CalibratedMargin, IsTwiceThe95thPercentileOfSizes) {
  std::vector<double> means(20, 0.001);
  means[3] = -0.004;
  EXPECT_DOUBLE_EQ(CalibratedMargin(means), 0.005);  // The 19th of 20 is 0.001.
  means[4] = 0.003;
  EXPECT_DOUBLE_EQ(CalibratedMargin(means), 0.006);  // Nearest rank: the 19th is 0.003, the sign doesn't matter.
}

}  // namespace
}  // namespace keval::verdict
