// The contract check on a GPU, in full: C12 past 2^31 elements included.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/number.h"
#include "core/contract/contract.h"

namespace keval::contract {
namespace {

class ContractGpuTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto devices = linear_logp::ListDevices().devices;
    if (std::none_of(devices.begin(), devices.end(), [](const auto& d) { return d.device.cuda; })) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

TEST_P(ContractGpuTest, EveryRowPassesWithTheSeedsBase) {
  const auto rows = CheckContract({.candidate = GetParam(), .device = {.cuda = true}}, nullptr, nullptr);
  ASSERT_TRUE(rows.ok()) << rows.status();
  for (const Row& row : *rows) {
    EXPECT_NE(row.status, RowStatus::kFail)
        << absl::StrCat(row.id, " ", row.arm, " ", row.case_name, ": ", DoubleText(row.measured), " against ",
                        DoubleText(row.limit), "; ", row.why);
    // C9 is float64's, which a GPU declines; C12 needs the memory of a large one.
    if (row.id == "C9") {
      EXPECT_EQ(row.status, RowStatus::kNotApplicable);
    }
    if (row.id == "C12" && row.status == RowStatus::kNotApplicable) {
      EXPECT_NE(row.why.find("memory"), std::string::npos);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Candidates, ContractGpuTest, ::testing::Values("portable_addmm", "materialized"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace keval::contract
