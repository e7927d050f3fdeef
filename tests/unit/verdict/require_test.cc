#include "core/verdict/require.h"

#include <gtest/gtest.h>

#include <string>

namespace keval::verdict {
namespace {

struct ExitCase {
  std::string verdict;
  std::string reason;
  std::string cause;
  bool non_inferior;
  int improved, equivalent, no_regression, any;
};

TEST(ExitCode, FollowsVerdictAndRequirement) {
  const ExitCase cases[] = {
      {"IMPROVED", "", "", true, 0, 3, 0, 0},
      {"EQUIVALENT", "", "", true, 3, 0, 0, 0},
      {"REGRESSED", "", "", false, 1, 1, 1, 0},
      {"INCONCLUSIVE", "BUDGET", "", true, 3, 3, 0, 0},
      {"INCONCLUSIVE", "BUDGET", "", false, 3, 3, 3, 0},
      {"INCONCLUSIVE", "TAIL_CONFLICT", "", true, 3, 3, 3, 0},
      {"INCONCLUSIVE", "MISSING_ROUNDS", "", true, 3, 3, 3, 0},
      {"CONTRACT_FAILED", "C3", "candidate", false, 4, 4, 4, 4},
      {"FAILED", "CANDIDATE_CRASHED", "candidate", false, 5, 5, 5, 5},
      {"FAILED", "BASE_HUNG", "base", false, 5, 5, 5, 5},
      {"FAILED", "SPAWN_FAILED", "harness", false, 6, 6, 6, 6},
      {"FAILED", "DEVICE_LOST", "device", false, 6, 6, 6, 6},
      {"FAILED", "RESTARTS", "infrastructure", false, 6, 6, 6, 6},
      {"", "", "", false, 3, 3, 3, 3},
  };
  for (const ExitCase& c : cases) {
    SCOPED_TRACE(c.verdict + "/" + c.reason);
    EXPECT_EQ(ExitCode(c.verdict, c.reason, c.cause, c.non_inferior, Require::kImproved), c.improved);
    EXPECT_EQ(ExitCode(c.verdict, c.reason, c.cause, c.non_inferior, Require::kEquivalent), c.equivalent);
    EXPECT_EQ(ExitCode(c.verdict, c.reason, c.cause, c.non_inferior, Require::kNoRegression), c.no_regression);
    EXPECT_EQ(ExitCode(c.verdict, c.reason, c.cause, c.non_inferior, Require::kAny), c.any);
  }
}

TEST(ParseRequire, KnowsFourWords) {
  EXPECT_EQ(ParseRequire("improved"), Require::kImproved);
  EXPECT_EQ(ParseRequire("equivalent"), Require::kEquivalent);
  EXPECT_EQ(ParseRequire("no-regression"), Require::kNoRegression);
  EXPECT_EQ(ParseRequire("any"), Require::kAny);
  EXPECT_EQ(ParseRequire("Improved"), std::nullopt);
  EXPECT_EQ(ParseRequire(""), std::nullopt);
}

}  // namespace
}  // namespace keval::verdict
