// An arm's inputs, results and verification, and blocks of it, on a CPU, with and without planted faults.
#include "core/measure/arm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "core/measure/block_runner.h"
#include "core/measure/environment.h"
#include "core/measure/op_counter.h"
#include "tests/support/planted_variants.h"

namespace keval::measure {
namespace {

using ::testing::HasSubstr;

class ArmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto session = DeviceSession::Open({}, 1);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }

  static ArmSpec Spec(const std::string& variant) {
    ArmSpec spec;
    spec.variant = variant;
    spec.num_tokens = 24;
    spec.hidden_size = 16;
    spec.vocab_size = 50;
    spec.bias = true;
    spec.chunk_elems = 400;  // Three chunks of eight tokens.
    return spec;
  }

  absl::StatusOr<std::unique_ptr<Arm>> Make(const std::string& variant) {
    return Arm::Create(Spec(variant), 11, session_.get());
  }

  // Prepare, then blocks; the first error.
  absl::Status Measure(const std::string& variant, int blocks) {
    auto arm = Make(variant);
    if (!arm.ok()) {
      return arm.status();
    }
    absl::Status status = (*arm)->Prepare("portable_matmul_add", Region::kForwardBackward);
    for (int i = 0; i < blocks && status.ok(); ++i) {
      status = RunBlock({2, 5}, *session_, arm->get()).status();
    }
    return status;
  }

  std::unique_ptr<DeviceSession> session_;
  std::vector<std::unique_ptr<linear_logp::ScopedVariantForTest>> planted_ = testing::PlantVariants();
};

TEST_F(ArmTest, RightVariantsPass) {
  for (const char* variant : {"portable_matmul_add", "portable_addmm", "materialized", "planted_right"}) {
    const absl::Status status = Measure(variant, 3);
    EXPECT_TRUE(status.ok()) << variant << ": " << status;
  }
}

TEST_F(ArmTest, EveryRegionAndTypePasses) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    for (const Region region : {Region::kForwardBackward, Region::kBackward, Region::kWeightGradient}) {
      ArmSpec spec = Spec("portable_addmm");
      spec.dtype = dtype;
      auto arm = Arm::Create(spec, 1, session_.get());
      ASSERT_TRUE(arm.ok()) << arm.status();
      ASSERT_TRUE((*arm)->Prepare("portable_matmul_add", region).ok());
      const auto block = RunBlock({1, 2}, *session_, arm->get());
      EXPECT_TRUE(block.ok()) << DTypeName(dtype) << " region " << static_cast<int>(region) << ": " << block.status();
    }
  }
}

TEST_F(ArmTest, ABlockTimesItsTimedRepetitionsOnly) {
  auto arm = Make("planted_slow");
  ASSERT_TRUE(arm.ok()) << arm.status();
  ASSERT_TRUE((*arm)->Prepare("portable_matmul_add", Region::kForwardBackward).ok());
  const auto block = RunBlock({1, 3}, *session_, arm->get());
  ASSERT_TRUE(block.ok()) << block.status();
  ASSERT_EQ(block->ns.size(), 3U);
  for (const std::int64_t ns : block->ns) {
    EXPECT_GE(ns, 30'000'000);
    EXPECT_LT(ns, 1'000'000'000);
  }
}

TEST_F(ArmTest, WrongResultsAreFoundBeforeTiming) {
  const absl::Status status = Measure("planted_wrong", 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("grad_weight of planted_wrong"));
}

TEST_F(ArmTest, KeptResultsAreFound) { EXPECT_EQ(Measure("planted_cached", 0).code(), absl::StatusCode::kDataLoss); }

TEST_F(ArmTest, SkippedWorkInATimedBlockIsFound) {
  EXPECT_TRUE(Measure("planted_skips_late", 0).ok());
  const absl::Status status = Measure("planted_skips_late", 2);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("after its timed calls"));
}

TEST_F(ArmTest, ChangedInputsAreFound) {
  EXPECT_THAT(std::string(Measure("planted_changes_inputs", 0).message()), HasSubstr("changed its inputs"));
  EXPECT_TRUE(Measure("planted_changes_late", 0).ok());
  const absl::Status status = Measure("planted_changes_late", 2);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
}

TEST_F(ArmTest, ThrownErrorsHaveTheirCauses) {
  EXPECT_EQ(Measure("planted_throws", 0).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Measure("planted_out_of_memory", 0).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ArmTest, AFallbackIsTold) {
  auto arm = Make("planted_falls_back");
  ASSERT_TRUE(arm.ok()) << arm.status();
  ASSERT_TRUE((*arm)->Prepare("portable_matmul_add", Region::kForwardBackward).ok());
  EXPECT_TRUE((*arm)->dispatch().fallback);
  EXPECT_EQ((*arm)->dispatch().reason, "planted");
}

TEST_F(ArmTest, UnknownVariantAndShapeAreRefused) {
  EXPECT_EQ(Make("no_such_variant").status().code(), absl::StatusCode::kInvalidArgument);
  ArmSpec spec = Spec("portable_addmm");
  spec.vocab_size = 0;
  EXPECT_EQ(Arm::Create(spec, 0, session_.get()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ArmTest, TheIsolatedAccumulationIsOneOpAChunk) {
  for (const auto& [variant, op] :
       {std::pair("portable_addmm", "aten::addmm_"), std::pair("portable_matmul_add", "aten::add_")}) {
    auto arm = Make(variant);
    ASSERT_TRUE(arm.ok()) << arm.status();
    ASSERT_TRUE((*arm)->Prepare("portable_matmul_add", Region::kWeightGradient).ok());
    const auto counts = CountOps([&arm] { return (*arm)->Run(); });
    ASSERT_TRUE(counts.ok()) << counts.status();
    EXPECT_EQ(counts->at(op), 3) << variant;
  }
  auto other = Make("materialized");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)->Prepare("portable_matmul_add", Region::kWeightGradient).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(ArmTest, ACpuSaysThatNoCacheIsOverwritten) {
  EXPECT_EQ(session_->flush().bytes(), 0);
  const auto facts = DescribeEnvironment(*session_);
  EXPECT_THAT(facts.at("cache_overwrite"), HasSubstr("none"));
  EXPECT_EQ(facts.at("worker_threads"), "1");
  EXPECT_EQ(facts.at("device"), "cpu");
  for (const char* name : {"cpu_model", "cpu_governor", "libtorch_version", "compiler", "timed_region", "allocator"}) {
    EXPECT_FALSE(facts.at(name).empty()) << name;
  }
}

}  // namespace
}  // namespace keval::measure
