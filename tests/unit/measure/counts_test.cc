// Memory peaks, op counts and kernel names, over torch calls whose answers are known.
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "absl/status/status.h"
#include "core/linear_logp/failure_text.h"
#include "core/measure/device_session.h"
#include "core/measure/dram_counter.h"
#include "core/measure/kernel_trace.h"
#include "core/measure/memory.h"
#include "core/measure/op_counter.h"

namespace keval::measure {
namespace {

class CountsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto session = DeviceSession::Open({}, 1);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }
  std::unique_ptr<DeviceSession> session_;
};

TEST_F(CountsTest, PeakIsExactForTensors) {
  at::Tensor kept;
  const auto peak = IncrementalPeakBytes(*session_, [&kept] {
    kept = at::empty({1000}, at::kFloat);
    { const at::Tensor scratch = at::empty({5000}, at::kFloat); }
    const at::Tensor later = at::empty({2000}, at::kFloat);
    return absl::OkStatus();
  });
  ASSERT_TRUE(peak.ok()) << peak.status();
  EXPECT_EQ(*peak, 4 * (1000 + 5000));
}

TEST_F(CountsTest, PeakLeavesOutWhatIsHeldAndStartsAnewEachTime) {
  const at::Tensor held = at::empty({100000}, at::kFloat);
  for (int i = 0; i < 2; ++i) {
    const auto peak = IncrementalPeakBytes(*session_, [] {
      at::empty({10}, at::kDouble);
      return absl::OkStatus();
    });
    ASSERT_TRUE(peak.ok()) << peak.status();
    EXPECT_EQ(*peak, 80);
  }
}

TEST_F(CountsTest, PeakPassesTheCallsErrorOn) {
  EXPECT_EQ(IncrementalPeakBytes(*session_, [] { return absl::AbortedError("no"); }).status(),
            absl::AbortedError("no"));
}

TEST_F(CountsTest, CountsOpsByName) {
  const auto counts = CountOps([] {
    at::Tensor a = at::ones({4, 4});
    for (int i = 0; i < 3; ++i) {
      a.add_(at::mm(a, a));
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->at("aten::mm"), 3);
  EXPECT_EQ(counts->at("aten::add_"), 3);
  EXPECT_EQ(counts->count("aten::addmm_"), 0U);
}

TEST_F(CountsTest, CountsOnlyWhatRanInside) {
  at::ones({2});
  const auto counts = CountOps([] { return absl::OkStatus(); });
  at::ones({2});
  ASSERT_TRUE(counts.ok());
  EXPECT_THAT(*counts, ::testing::IsEmpty());
}

TEST_F(CountsTest, ACpuRunsNoKernels) {
  const auto counts = TraceKernels(*session_, [] { return absl::OkStatus(); });
  ASSERT_TRUE(counts.ok());
  EXPECT_THAT(*counts, ::testing::IsEmpty());
}

TEST_F(CountsTest, ACpuHasNoCountedBytesAndSaysSo) {
  bool called = false;
  const auto bytes = CountDramBytes(*session_, [&called] {
    called = true;
    return absl::OkStatus();
  });
  EXPECT_EQ(bytes.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(bytes.status().message()), ::testing::HasSubstr("CPU"));
  EXPECT_FALSE(called);
}

TEST(KernelNameTest, KeepsNamespaceAndNameOnly) {
  // void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, ...>(int, ...)
  EXPECT_EQ(
      KernelName("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"),
      "at::native::vectorized_elementwise_kernel");
  EXPECT_EQ(KernelName("_ZN5keval7measure12_GLOBAL__N_115OverwriteKernelEP5uint4lj"),
            "keval::measure::OverwriteKernel");
  EXPECT_EQ(KernelName("sm90_xmma_gemm_f32f32_f32f32_f32_tn_n"), "sm90_xmma_gemm_f32f32_f32f32_f32_tn_n");
}

TEST(FailureTextTest, TellsCausesApart) {
  using absl::StatusCode;
  const auto code = [](const char* text) { return linear_logp::StatusOfFailureText(text).code(); };
  EXPECT_EQ(code("CUDA out of memory. Tried to allocate 2 GiB"), StatusCode::kResourceExhausted);
  EXPECT_EQ(code("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(code("CUDA error: an illegal memory access was encountered"), StatusCode::kAborted);
  EXPECT_EQ(code("CUDA error: device-side assert triggered"), StatusCode::kAborted);
  EXPECT_EQ(code("CUDA error: uncorrectable ECC error encountered"), StatusCode::kUnavailable);
  EXPECT_EQ(code("mat1 and mat2 shapes cannot be multiplied"), StatusCode::kInternal);
}

TEST(FailureTextTest, KeepsTheFirstLineAndMakesItPrintable) {
  EXPECT_EQ(linear_logp::StatusOfFailureText("one\x1b[2J\ntwo").message(), "one\\u001B[2J");
}

TEST(FailureTextTest, TorchErrorsBecomeStatuses) {
  const absl::Status shapes = linear_logp::CatchFailures([] {
    at::mm(at::ones({2, 3}), at::ones({2, 3}));
    return absl::OkStatus();
  });
  EXPECT_EQ(shapes.code(), absl::StatusCode::kInternal);
  const absl::Status memory = linear_logp::CatchFailures([] {
    at::empty({std::int64_t{1} << 50}, at::kFloat);
    return absl::OkStatus();
  });
  EXPECT_EQ(memory.code(), absl::StatusCode::kResourceExhausted) << memory;
}

}  // namespace
}  // namespace keval::measure
