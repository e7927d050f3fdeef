// A deliberately wrong variant for each line of the contract: its row fails, for the arm that is wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "absl/strings/str_cat.h"
#include "core/contract/contract.h"
#include "core/contract/large_checks.h"
#include "tests/unit/contract/faulty_variants.h"

namespace keval::contract {
namespace {

using linear_logp::ScopedVariantForTest;

class FaultTest : public ::testing::TestWithParam<Fault> {};

TEST_P(FaultTest, ItsRowFailsForItsArm) {
  const Fault& fault = GetParam();
  const ScopedVariantForTest registered(MakeFaulty(fault));
  ContractOptions options;
  (fault.arm == "base" ? options.base : options.candidate) = fault.name;
  const auto rows = CheckContract(options, nullptr, nullptr);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_FALSE(Passed(*rows));
  bool seen = false;
  for (const Row& row : *rows) {
    if (row.arm == fault.arm || row.arm == "both") {
      if (row.id != fault.row) continue;
      seen = true;
      EXPECT_EQ(row.status, RowStatus::kFail) << row.id << " " << row.arm;
      EXPECT_FALSE(row.why.empty());
      EXPECT_FALSE(row.limit == 0 && row.measured <= 0) << row.id;  // What a row counts is what made it fail.
    } else {
      // The other arm is a right one.
      EXPECT_NE(row.status, RowStatus::kFail) << row.id << " " << row.arm << ": " << row.case_name << " " << row.why;
    }
  }
  EXPECT_TRUE(seen);
}

INSTANTIATE_TEST_SUITE_P(EveryLine, FaultTest, ::testing::ValuesIn(Faults()),
                         [](const auto& test) { return absl::StrCat(test.param.row, "_", test.param.name); });

TEST(Faults, CoverEveryLineButC12) {
  std::set<std::string> rows;
  for (const Fault& fault : Faults()) rows.insert(fault.row);
  for (int i = 1; i <= 10; ++i) EXPECT_EQ(rows.count(absl::StrCat("P", i)), 1) << i;
  for (int i = 1; i <= 14; ++i) EXPECT_EQ(rows.count(absl::StrCat("C", i)), i == 12 ? 0 : 1) << i;
}

TEST(Faults, AreNamedForTheBaseToo) {
  Fault fault =
      *std::find_if(Faults().begin(), Faults().end(), [](const Fault& f) { return f.name == "logp_off_by_a_little"; });
  fault.inner = "portable_matmul_add";
  const ScopedVariantForTest registered(MakeFaulty(fault));
  const auto rows = CheckContract({.base = fault.name}, nullptr, nullptr);
  ASSERT_TRUE(rows.ok()) << rows.status();
  for (const Row& row : *rows) {
    if (row.id != "C2") continue;
    EXPECT_EQ(row.status == RowStatus::kFail, row.arm == "base") << row.arm << " " << row.why;
  }
}

// Whose code runs, as its server would read it when the process died there.
class RunningTest : public ::testing::Test {
 protected:
  // Of `name`, which says whose code it finds itself to be.
  Fault Tells(const std::string& name) {
    Fault fault;
    fault.name = name;
    fault.inner = "portable_matmul_add";
    fault.after_forward = [this](const auto&, at::Tensor*) { ++seen_[mark_]; };
    fault.after_backward = [this](const auto&, const auto&, linear_logp::Gradients*) { ++seen_[mark_]; };
    return fault;
  }

  RunningMark mark_ = Running::kHarness;
  std::map<Running, int> seen_;
};

TEST_F(RunningTest, IsTheArmInItsCallsAndTheHarnessBetweenThem) {
  const ScopedVariantForTest registered(MakeFaulty(Tells("tells")));
  int rows = 0;
  const auto on_row = [&](const Row&) {
    ++rows;
    EXPECT_EQ(mark_.load(), Running::kHarness);
  };
  ASSERT_TRUE(CheckContract({.candidate = "tells", .running = &mark_}, on_row, nullptr).ok());
  EXPECT_GT(rows, 10);
  EXPECT_GT(seen_[Running::kArm], 100);
  EXPECT_EQ(seen_.size(), 1U);
  seen_.clear();
  ASSERT_TRUE(CheckContract({.base = "tells", .running = &mark_}, on_row, nullptr).ok());
  EXPECT_GT(seen_[Running::kBase], 100);
  EXPECT_EQ(seen_.size(), 1U);
}

TEST_F(RunningTest, IsTheHarnessAgainAfterAnArmThrew) {
  Fault fault = Tells("throws");
  fault.after_backward = [](const auto&, const auto&, linear_logp::Gradients*) { throw std::runtime_error("planted"); };
  const ScopedVariantForTest registered(MakeFaulty(fault));
  int failed = 0;
  const auto rows = CheckContract(
      {.candidate = "throws", .running = &mark_},
      [&](const Row& row) {
        EXPECT_EQ(mark_.load(), Running::kHarness);
        if (row.status == RowStatus::kFail) {
          ++failed;
          EXPECT_NE(row.arm, "base") << row.id;
        }
      },
      nullptr);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_GT(failed, 5);
}

// What another time may not find is no row's failure; the mark stays, and tells whose call it was.
TEST_F(RunningTest, WantOfMemoryAndALostDeviceEndTheCheck) {
  const std::pair<const char*, absl::StatusCode> causes[] = {
      {"[enforce fail] DefaultCPUAllocator: can't allocate memory", absl::StatusCode::kResourceExhausted},
      {"CUDA out of memory. Tried to allocate 2 GiB", absl::StatusCode::kResourceExhausted},
      {"CUDA error: GPU is lost", absl::StatusCode::kUnavailable},
      {"CUDA error: uncorrectable ECC error encountered", absl::StatusCode::kUnavailable}};
  for (const auto& [text, code] : causes) {
    Fault fault = Tells("throws");
    fault.after_backward = [text = text](const auto&, const auto&, linear_logp::Gradients*) {
      throw std::runtime_error(text);
    };
    const ScopedVariantForTest registered(MakeFaulty(fault));
    EXPECT_EQ(CheckContract({.candidate = "throws", .running = &mark_}, nullptr, nullptr).status().code(), code)
        << text;
    EXPECT_EQ(mark_.load(), Running::kArm) << text;
    EXPECT_EQ(CheckContract({.base = "throws", .running = &mark_}, nullptr, nullptr).status().code(), code) << text;
    EXPECT_EQ(mark_.load(), Running::kBase) << text;
  }
}

TEST_F(RunningTest, TheChecksOwnErrorsAreToldByWhatTheyAre) {
  const auto own = [this](auto error) {
    return CheckContract(
               {.running = &mark_}, [&](const Row&) { throw error; }, nullptr)
        .status();
  };
  const absl::Status memory = own(std::bad_alloc());
  EXPECT_EQ(memory.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(memory.message().find("the contract check's own code failed on cpu"), std::string::npos) << memory;
  const absl::Status other = own(std::runtime_error("planted"));
  EXPECT_EQ(other.code(), absl::StatusCode::kInternal);
  EXPECT_NE(other.message().find("planted"), std::string::npos) << other;
  EXPECT_EQ(mark_.load(), Running::kHarness);
}

// C12's check itself needs a GPU; its judgement doesn't depend on the size, so that a variant whose offsets wrap at
// 2^13 elements instead of 2^31 shows it here.
class OffsetTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kWrap = 1 << 13;

  static Row Judge(const linear_logp::Variant& variant, const CaseShape& shape) {
    RunningMark mark = Running::kHarness;
    Evidence evidence = {
        CaseMaker(0, {}), {Arm(0, &variant, {}, nullptr, &mark), Arm(1, &variant, {}, nullptr, &mark)}, false, {}};
    Tally tally("C12", "candidate");
    JudgeLargeShape(evidence, evidence.candidate(), shape, &tally);
    return tally.ToRow();
  }
};

TEST_F(OffsetTest, C12FailsWhereOffsetsWrap) {
  const CaseShape many_logits = {.num_tokens = 300, .hidden_size = 8, .vocab_size = 37};
  const CaseShape large_table = {.num_tokens = 5, .hidden_size = 24, .vocab_size = 401};
  for (const char* name : {"portable_matmul_add", "portable_addmm", "materialized"}) {
    for (const CaseShape& shape : {many_logits, large_table}) {
      const Row row = Judge(**linear_logp::FindVariant(name), shape);
      EXPECT_EQ(row.status, RowStatus::kPass) << name << " " << row.why;
    }
  }
  const auto logits = MakeFaulty({.name = "logits_offset_wraps", .after_forward = [](const auto& in, at::Tensor* logp) {
                                    const std::int64_t first = kWrap / in.weight.size(0);
                                    if (first < logp->size(0)) logp->slice(0, first).copy_(logp->select(0, 0));
                                  }});
  EXPECT_EQ(Judge(*logits, many_logits).status, RowStatus::kFail);
  EXPECT_EQ(Judge(*logits, large_table).status, RowStatus::kPass);
  const auto table = MakeFaulty({.name = "table_offset_wraps",
                                 .after_backward = [](const auto& in, const auto&, linear_logp::Gradients* gradients) {
                                   const std::int64_t first = kWrap / in.hidden.size(1);
                                   at::Tensor& weight = gradients->grad_weight;
                                   if (first < weight.size(0)) weight.slice(0, first).zero_();
                                 }});
  EXPECT_EQ(Judge(*table, large_table).status, RowStatus::kFail);
  EXPECT_EQ(Judge(*table, many_logits).status, RowStatus::kPass);
}

}  // namespace
}  // namespace keval::contract
