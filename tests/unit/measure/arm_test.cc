// An arm's inputs, results and verification, and blocks of it, on a CPU, with and without planted faults.
#include "core/measure/arm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "core/measure/block_runner.h"
#include "core/measure/environment.h"
#include "core/measure/nvml.h"
#include "core/measure/op_counter.h"
#include "core/measure/wrong_result.h"
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
  absl::Status Measure(const std::string& variant, int blocks, const std::string& base = "portable_matmul_add") {
    auto arm = Make(variant);
    if (!arm.ok()) {
      return arm.status();
    }
    absl::Status status = (*arm)->Prepare(base, Region::kForwardBackward);
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
    for (const char* base : {"portable_matmul_add", "materialized"}) {
      const absl::Status status = Measure(variant, 3, base);
      EXPECT_TRUE(status.ok()) << variant << " against " << base << ": " << status;
    }
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

// Rows that no vector or tile divides, and a chunk of one token: what a few tokens' rows hold must not reach the
// others.
TEST_F(ArmTest, VariedTokensLeaveTheOthersBitsAlone) {
  for (const char* variant : {"portable_matmul_add", "portable_addmm", "materialized"}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
      ArmSpec spec = Spec(variant);
      spec.dtype = dtype;
      spec.num_tokens = 37;
      spec.hidden_size = 33;
      spec.vocab_size = 331;
      spec.chunk_elems = 9 * 331;
      auto arm = Arm::Create(spec, 5, session_.get());
      ASSERT_TRUE(arm.ok()) << arm.status();
      ASSERT_TRUE((*arm)->Prepare("portable_matmul_add", Region::kForwardBackward).ok());
      const auto block = RunBlock({2, 20}, *session_, arm->get());
      EXPECT_TRUE(block.ok()) << variant << " " << DTypeName(dtype) << ": " << block.status();
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

// The session's readings are the fake NVML's first device's, which $KEVAL_FAKE_NVML_… change.
class NvmlArmTest : public ArmTest {
 protected:
  void SetUp() override {
    ArmTest::SetUp();
    setenv("KEVAL_NVML_LIBRARY", KEVAL_FAKE_NVML, 1);
    auto nvml = Nvml::Open("GPU-00000000-0000-0000-0000-000000000000");
    ASSERT_TRUE(nvml.ok()) << nvml.status();
    session_->UseNvmlForTest(*std::move(nvml));
  }
  void TearDown() override {
    for (const char* name :
         {"KEVAL_NVML_LIBRARY", "KEVAL_FAKE_NVML_REASONS", "KEVAL_FAKE_NVML_LOST", "KEVAL_FAKE_NVML_VIOLATION"}) {
      unsetenv(name);
    }
  }

  // A block of seven calls of an arm that does `fault`, told the number of the call in its block.
  absl::StatusOr<BlockResult> Block(const std::function<void(int)>& fault) {
    auto armed = std::make_shared<int>(-1);
    const auto planted = testing::Plant("planted_here", [armed, fault](const testing::Call&) {
      if (*armed >= 0) fault(++*armed);
    });
    auto arm = Make("planted_here");
    if (!arm.ok()) return arm.status();
    if (absl::Status status = (*arm)->Prepare("portable_matmul_add", Region::kForwardBackward); !status.ok()) {
      return status;
    }
    *armed = 0;
    return RunBlock({2, 5}, *session_, arm->get());
  }
};

TEST_F(NvmlArmTest, ThrottlingWithinABlockIsSeenThoughNoEdgeShowsIt) {
  constexpr std::uint64_t kSlowdown = 0x8;
  const auto calm = Block([](int) {});
  ASSERT_TRUE(calm.ok()) << calm.status();
  EXPECT_FALSE(WasThrottled(*calm));
  for (const int call : {1, 4}) {  // A discarded repetition's and a timed one's.
    const auto block = Block([call](int now) { setenv("KEVAL_FAKE_NVML_REASONS", now == call ? "8" : "1", 1); });
    ASSERT_TRUE(block.ok()) << block.status();
    EXPECT_FALSE(IsThrottled(block->before.throttle_reasons | block->after.throttle_reasons)) << call;
    EXPECT_EQ(block->reasons_between & kSlowdown, kSlowdown) << call;
    EXPECT_TRUE(WasThrottled(*block)) << call;
  }
  unsetenv("KEVAL_FAKE_NVML_REASONS");
  setenv("KEVAL_FAKE_NVML_VIOLATION", "5", 1);
  const auto heated = Block([](int) { setenv("KEVAL_FAKE_NVML_VIOLATION", "6", 1); });
  ASSERT_TRUE(heated.ok()) << heated.status();
  EXPECT_TRUE(WasThrottled(*heated));
}

TEST_F(NvmlArmTest, AnEdgeThatIsThrottledIsEnough) {
  BlockResult block;
  EXPECT_FALSE(WasThrottled(block));
  block.before.throttle_reasons = 0x40;
  EXPECT_TRUE(WasThrottled(block));
  std::swap(block.before, block.after);
  EXPECT_TRUE(WasThrottled(block));
}

// What CUDA says then may be any error of the call.
TEST_F(NvmlArmTest, ADeviceThatNvmlCallsLostIsLost) {
  const absl::Status poisoned = absl::AbortedError("unspecified launch failure");
  EXPECT_EQ(session_->Explained(poisoned), poisoned);
  setenv("KEVAL_FAKE_NVML_LOST", "15", 1);
  EXPECT_TRUE(absl::IsUnavailable(session_->Explained(poisoned)));
  EXPECT_THAT(std::string(session_->Explained(absl::InternalError("unknown error")).message()),
              HasSubstr("NVML says that the GPU is lost: unknown error"));
  EXPECT_TRUE(session_->Explained(absl::OkStatus()).ok());
  EXPECT_TRUE(absl::IsDataLoss(session_->Explained(absl::DataLossError("a wrong result"))));
}

struct Cheat {
  const char* name;
  const char* kind;
  bool late;  // Right before it is timed.
  const char* says;
};
class CheatTest : public ArmTest, public ::testing::WithParamInterface<Cheat> {};

TEST_P(CheatTest, IsFoundAndNamed) {
  const Cheat& cheat = GetParam();
  const std::string variant = absl::StrCat("planted_", cheat.name);
  if (cheat.late) {
    EXPECT_TRUE(Measure(variant, 0).ok());
    planted_.clear();
    planted_ = testing::PlantVariants();  // Count its calls anew.
  }
  const absl::Status status = Measure(variant, cheat.late ? 3 : 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_EQ(WrongResultNameOf(status), cheat.kind) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(variant));
  EXPECT_THAT(std::string(status.message()), HasSubstr(cheat.says));
}

INSTANTIATE_TEST_SUITE_P(
    planted_cheat, CheatTest,
    ::testing::Values(Cheat{"wrong", "WRONG_RESULT", false,
                            "grad_weight that is not what portable_matmul_add computes"},
                      Cheat{"cached", "CACHED_RESULT", false, "is what it computed from other inputs"},
                      Cheat{"memoises", "CACHED_RESULT", true, "a cached result: grad_hidden is"},
                      Cheat{"memoises_logp", "CACHED_RESULT", true, "a cached result: logp is"},
                      Cheat{"falls_back_late", "TIMED_DIFFERENTLY", true,
                            "another path in a block than before it: another path instead of"},
                      Cheat{"skips_late", "TIMED_DIFFERENTLY", true, "computes otherwise when timed: grad_weight"},
                      Cheat{"skips_most", "TIMED_DIFFERENTLY", true, "computes otherwise when timed: grad_weight"},
                      Cheat{"not_repeatable", "NOT_REPEATABLE", false, "gives other bits when it computes"},
                      Cheat{"partly_written", "NOT_WRITTEN", false, "partly unwritten"},
                      Cheat{"recycled", "RECYCLED_MEMORY", false, "reads memory that it has not written"},
                      Cheat{"unfinished", "UNFINISHED_WORK", false, "returned before its work was done"},
                      Cheat{"rounded", "LOW_PRECISION", false, "computes float32 with fewer bits"},
                      Cheat{"changes_precision", "PRECISION_CHANGED", false, "precision settings"},
                      Cheat{"changes_inputs", "INPUTS_CHANGED", false, "changed its inputs: hidden"},
                      Cheat{"changes_late", "INPUTS_CHANGED", true, "changed its inputs: hidden"}),
    [](const auto& test) { return std::string(test.param.name); });

struct ForeignCheat {
  const char* name;
  const char* kind;
  bool late = false;
};
class ForeignCheatTest : public ArmTest, public ::testing::WithParamInterface<std::tuple<ForeignCheat, DType>> {
 protected:
  // Large enough for 0.1 % to show in 16 bits.
  absl::Status MeasureForeign(const std::string& name, int blocks) {
    ArmSpec spec = Spec(absl::StrCat("planted_foreign_", name));
    spec.dtype = std::get<DType>(GetParam());
    spec.num_tokens = 64;
    spec.hidden_size = 128;
    auto arm = Arm::Create(spec, 11, session_.get());
    absl::Status status = arm.status();
    if (status.ok()) status = (*arm)->Prepare("portable_matmul_add", Region::kForwardBackward);
    for (int i = 0; i < blocks && status.ok(); ++i) status = RunBlock({2, 5}, *session_, arm->get()).status();
    return status;
  }
};

// Who claims no production path is allowed another distance from base, and nothing else.
TEST_P(ForeignCheatTest, IsFoundAndNamed) {
  const ForeignCheat& cheat = std::get<ForeignCheat>(GetParam());
  const absl::Status status = MeasureForeign(cheat.name, cheat.late ? 3 : 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_EQ(WrongResultNameOf(status), cheat.kind) << status;
  EXPECT_TRUE(MeasureForeign("right", 1).ok());
}

INSTANTIATE_TEST_SUITE_P(
    planted_cheat, ForeignCheatTest,
    ::testing::Combine(
        ::testing::Values(ForeignCheat{"wrong", "WRONG_RESULT"}, ForeignCheat{"nan", "WRONG_RESULT"},
                          ForeignCheat{"wrong_shape", "WRONG_RESULT"}, ForeignCheat{"wrong_dtype", "WRONG_RESULT"},
                          ForeignCheat{"cached", "CACHED_RESULT"}, ForeignCheat{"memoises", "CACHED_RESULT", true},
                          ForeignCheat{"memoises_logp", "CACHED_RESULT", true},
                          ForeignCheat{"falls_back_late", "TIMED_DIFFERENTLY", true},
                          ForeignCheat{"skips_late", "TIMED_DIFFERENTLY", true},
                          ForeignCheat{"skips_most", "TIMED_DIFFERENTLY", true},
                          ForeignCheat{"partly_written", "NOT_WRITTEN"}, ForeignCheat{"recycled", "RECYCLED_MEMORY"},
                          ForeignCheat{"unfinished", "UNFINISHED_WORK"},
                          ForeignCheat{"changes_precision", "PRECISION_CHANGED"},
                          ForeignCheat{"changes_inputs", "INPUTS_CHANGED"},
                          ForeignCheat{"changes_late", "INPUTS_CHANGED", true}),
        ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16)),
    [](const auto& test) {
      return absl::StrCat(std::get<ForeignCheat>(test.param).name, "_", DTypeName(std::get<DType>(test.param)));
    });

// These show in float32 alone: what they change is rounded away, or is not there, in 16 bits.
INSTANTIATE_TEST_SUITE_P(planted_cheat_float32, ForeignCheatTest,
                         ::testing::Combine(::testing::Values(ForeignCheat{"not_repeatable", "NOT_REPEATABLE"},
                                                              ForeignCheat{"rounded", "LOW_PRECISION"}),
                                            ::testing::Values(DType::kFloat32)),
                         [](const auto& test) { return std::string(std::get<ForeignCheat>(test.param).name); });

// What each element's own limit lets through in 16 bits.
TEST_F(ArmTest, AProductionPathsTrendIsFoundToo) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const auto& [variant, right] : {std::pair("planted_wrong", false), std::pair("portable_addmm", true)}) {
      ArmSpec spec = Spec(variant);
      spec.dtype = dtype;
      spec.num_tokens = 64;
      spec.hidden_size = 128;
      auto arm = Arm::Create(spec, 11, session_.get());
      ASSERT_TRUE(arm.ok()) << arm.status();
      const absl::Status status = (*arm)->Prepare("portable_matmul_add", Region::kForwardBackward);
      EXPECT_EQ(status.ok(), right) << variant << " " << DTypeName(dtype) << ": " << status;
    }
  }
}

// The distance that is allowed between two summing orders is no excuse for what has none.
TEST_F(ArmTest, AResultThatHasNoDistanceIsWrongAgainstAnyBase) {
  for (const char* variant : {"planted_nan", "planted_wrong_shape", "planted_wrong_dtype"}) {
    for (const char* base : {"portable_matmul_add", "materialized"}) {
      const absl::Status status = Measure(variant, 0, base);
      EXPECT_EQ(WrongResultNameOf(status), "WRONG_RESULT") << variant << " against " << base << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("grad_weight that is not what ", base)))
          << variant;
    }
  }
}

TEST_F(ArmTest, ThrownErrorsHaveTheirCauses) {
  EXPECT_EQ(Measure("planted_throws", 0).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Measure("planted_out_of_memory", 0).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Measure("planted_illegal_access", 0).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Measure("planted_loses_device", 0).code(), absl::StatusCode::kUnavailable);
}

TEST_F(ArmTest, TheMarkTellsWhoseCodeFailed) {
  RunningMark mark = Running::kBase;
  session_ = *DeviceSession::Open({}, 1, &mark);
  auto arm = Make("planted_throws");
  ASSERT_TRUE(arm.ok()) << arm.status();
  EXPECT_EQ(mark, Running::kHarness);  // Nothing of the arm runs while its inputs are made.
  EXPECT_FALSE((*arm)->Prepare("portable_matmul_add", Region::kForwardBackward).ok());
  EXPECT_EQ(mark, Running::kArm);
  auto right = Make("planted_right");
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_FALSE((*right)->Prepare("planted_throws", Region::kForwardBackward).ok());
  EXPECT_EQ(mark, Running::kBase);
  ASSERT_TRUE((*right)->Prepare("portable_matmul_add", Region::kForwardBackward).ok());
  ASSERT_TRUE(RunBlock({1, 1}, *session_, right->get()).ok());
  EXPECT_EQ(mark, Running::kHarness);
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
