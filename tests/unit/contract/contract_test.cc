// The contract check on the variants of this build: every row of the production pair passes on this CPU.
#include "core/contract/contract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/number.h"

namespace keval::contract {
namespace {

using ::testing::HasSubstr;

std::string Table(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) {
    text += row.id + " " + row.arm + " " + std::string(RowStatusName(row.status)) + " " + row.case_name + " " +
            DoubleText(row.measured) + " <= " + DoubleText(row.limit) + " " + row.why + "\n";
  }
  return text;
}

std::vector<std::string> IdsAndArms(const std::vector<Row>& rows) {
  std::vector<std::string> names;
  for (const Row& row : rows) names.push_back(row.id + " " + row.arm);
  return names;
}

TEST(CheckContract, ProductionPairPassesEveryRow) {
  std::vector<Row> streamed;
  const auto rows = CheckContract(
      {}, [&](const Row& row) { streamed.push_back(row); }, nullptr);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE(Passed(*rows)) << Table(*rows);
  EXPECT_EQ(IdsAndArms(streamed), IdsAndArms(*rows));

  // One row for each line and arm; P7 and C1 compare the arms. What doesn't apply is known, and says why.
  std::vector<std::string> expected;
  for (const char* id : {"P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8",  "P9",  "P10", "C1",  "C2",
                         "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "C11", "C12", "C13", "C14"}) {
    if (std::string(id) == "P7" || std::string(id) == "C1") {
      expected.push_back(std::string(id) + " both");
    } else {
      expected.push_back(std::string(id) + " base");
      expected.push_back(std::string(id) + " candidate");
    }
  }
  EXPECT_EQ(IdsAndArms(*rows), expected);
  std::vector<std::string> not_applicable;
  for (const Row& row : *rows) {
    if (row.status != RowStatus::kNotApplicable) continue;
    not_applicable.push_back(row.id + " " + row.arm);
    EXPECT_FALSE(row.why.empty()) << row.id;
  }
  EXPECT_THAT(not_applicable, ::testing::ElementsAre("P5 candidate", "P6 base", "C12 base", "C12 candidate"));
}

// Rows that count elements or operators say that there were none; no row has a NaN beside a limit.
TEST(CheckContract, RowsThatCountHaveACountAndTheLimitZero) {
  const auto rows = CheckContract({.quick = true}, nullptr, nullptr);
  ASSERT_TRUE(rows.ok()) << rows.status();
  const std::set<std::string> counting = {"P1", "P2", "P4", "P5", "P6", "P7", "P10", "C4", "C5", "C7"};
  for (const Row& row : *rows) {
    EXPECT_EQ(std::isnan(row.measured), std::isnan(row.limit)) << row.id;
    if (row.status != RowStatus::kPass || counting.count(row.id) == 0) continue;
    EXPECT_EQ(row.measured, 0) << row.id << " " << row.arm;
    EXPECT_EQ(row.limit, 0) << row.id << " " << row.arm;
  }
}

// With these seeds an upstream near zero had put float16 gradients among the subnormals.
TEST(CheckContract, TheProductionPathsPassWhateverTheSeed) {
  for (const std::uint64_t seed : std::vector<std::uint64_t>{5976727391620102467U, 12733797664055076612U, 0U}) {
    const auto rows = CheckContract({.seed = seed, .quick = true}, nullptr, nullptr);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_TRUE(Passed(*rows)) << seed << "\n" << Table(*rows);
  }
}

TEST(CheckContract, AVariantThatIsNoProductionPathIsJudgedByTheRest) {
  const auto rows = CheckContract({.candidate = "materialized", .seed = 9007199254740993}, nullptr, nullptr);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE(Passed(*rows)) << Table(*rows);
  for (const Row& row : *rows) {
    const bool production = row.id[0] == 'P' && row.id != "P9" && row.id != "P10" && row.arm != "base";
    EXPECT_EQ(row.status == RowStatus::kNotApplicable,
              production || row.id == "C12" || (row.id == "P6" && row.arm == "base"))
        << row.id << " " << row.arm << " " << row.why;
  }
}

TEST(CheckContract, PassesForOtherSeeds) {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    const auto rows = CheckContract({.seed = seed}, nullptr, nullptr);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_TRUE(Passed(*rows)) << "seed " << seed << "\n" << Table(*rows);
  }
}

TEST(CheckContract, RefusesUnknownVariantsAndDevices) {
  const auto variant = CheckContract({.candidate = "no_such"}, nullptr, nullptr);
  EXPECT_EQ(variant.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(variant.status().message()), HasSubstr("no_such"));
  const auto device = CheckContract({.device = {.cuda = true, .index = 63}}, nullptr, nullptr);
  EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CheckContract, EndsWithWhatTheCheckAnswers) {
  int asked = 0;
  const auto rows = CheckContract(
      {}, nullptr, [&]() -> absl::Status { return ++asked > 100 ? absl::CancelledError("enough") : absl::OkStatus(); });
  EXPECT_EQ(rows.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(asked, 101);
}

TEST(Passed, NeedsRowsAndNoFailure) {
  EXPECT_FALSE(Passed({}));
  EXPECT_TRUE(Passed({{.id = "C1", .status = RowStatus::kPass}, {.id = "C2", .status = RowStatus::kNotApplicable}}));
  EXPECT_FALSE(Passed({{.id = "C1", .status = RowStatus::kPass}, {.id = "C2", .status = RowStatus::kFail}}));
}

}  // namespace
}  // namespace keval::contract
