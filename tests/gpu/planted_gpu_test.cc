// Planted faults that only a GPU can have: each caught and named by an arm's preparation or its blocks.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "core/measure/arm.h"
#include "core/measure/block_runner.h"
#include "core/measure/wrong_result.h"
#include "tests/gpu/spin_kernel.h"
#include "tests/support/planted_variants.h"

namespace keval::measure {
namespace {

using testing::Call;
using testing::Fault;
using ::testing::HasSubstr;

// grad_weight comes 5 ms later, on a stream that the caller's doesn't wait for.
void UseSideStream(const Call& call) {
  constexpr std::uint64_t kLateNs = 5'000'000;
  const at::Tensor right = call.gradients->grad_weight;
  call.gradients->grad_weight = at::zeros_like(right);
  at::cuda::CUDAEvent ready;
  ready.record();
  const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool();
  ready.block(side);
  const c10::cuda::CUDAStreamGuard guard(side);
  testing::Spin(side.stream(), kLateNs);
  call.gradients->grad_weight.copy_(right);
}

void UseTf32(const Call& call) {
  at::globalContext().setAllowTF32CuBLAS(true);
  *call.gradients = call.right(call.inputs);
  at::globalContext().setAllowTF32CuBLAS(false);
}

ArmSpec Spec() {
  ArmSpec spec;
  spec.variant = "planted";
  spec.num_tokens = 512;
  spec.hidden_size = 256;
  spec.vocab_size = 5000;
  spec.bias = true;
  spec.chunk_elems = 128 * 5000;
  return spec;
}

absl::Status Measure(Fault fault, RunningMark* mark = nullptr) {
  const auto planted = testing::Plant("planted", std::move(fault));
  auto session = DeviceSession::Open({true, 0}, 1, mark);
  if (!session.ok()) {
    return session.status();
  }
  auto arm = Arm::Create(Spec(), 3, session->get());
  if (!arm.ok()) {
    return arm.status();
  }
  absl::Status status = (*arm)->Prepare("portable_matmul_add", Region::kForwardBackward);
  return status.ok() ? RunBlock({1, 2}, **session, arm->get()).status() : status;
}

bool NoDevice() {
  int count = 0;
  return cudaGetDeviceCount(&count) != cudaSuccess || count == 0;
}

struct DeviceCheat {
  const char* name;
  const char* kind;
  Fault fault;
};
class PlantedGpuTest : public ::testing::TestWithParam<DeviceCheat> {};

TEST_P(PlantedGpuTest, IsFoundAndNamed) {
  if (NoDevice()) {
    GTEST_SKIP() << "no CUDA device";
  }
  const absl::Status status = Measure(GetParam().fault);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_EQ(WrongResultNameOf(status), GetParam().kind) << status;
  EXPECT_TRUE(Measure([](const Call& /*call*/) {}).ok());  // The next one.
}

INSTANTIATE_TEST_SUITE_P(planted_gpu_cheat, PlantedGpuTest,
                         ::testing::Values(DeviceCheat{"side_stream", "UNFINISHED_WORK", UseSideStream},
                                           DeviceCheat{"tf32", "LOW_PRECISION", UseTf32},
                                           DeviceCheat{"recycled_memory", "RECYCLED_MEMORY", testing::AddFreshMemory},
                                           DeviceCheat{"partly_written", "NOT_WRITTEN", testing::WritePartly}),
                         [](const auto& test) { return test.param.name; });

struct DeviceLoss {
  const char* name;
  absl::StatusCode code;
  Fault fault;
};
class PlantedGpuLossDeathTest : public ::testing::TestWithParam<DeviceLoss> {};

// In a process of its own, whose context it may lose. 0 where all was as it should be.
int Lose(const DeviceLoss& loss) {
  RunningMark mark = Running::kHarness;
  const absl::Status status = Measure(loss.fault, &mark);
  std::fputs(status.ToString().c_str(), stderr);
  if (status.code() != loss.code) return 1;
  return mark == Running::kArm ? 0 : 2;
}

TEST_P(PlantedGpuLossDeathTest, HasItsCauseAndIsTheArms) {
  if (NoDevice()) {
    GTEST_SKIP() << "no CUDA device";
  }
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(Lose(GetParam())), ::testing::ExitedWithCode(0), "");
}

void AccessIllegally(const Call& /*call*/) { testing::WriteOutside(c10::cuda::getCurrentCUDAStream().stream()); }

void TakeTooMuch(const Call& call) {
  call.gradients->grad_weight = at::empty({std::int64_t{1} << 42}, call.gradients->grad_weight.options());
}

INSTANTIATE_TEST_SUITE_P(planted_gpu_loss, PlantedGpuLossDeathTest,
                         ::testing::Values(DeviceLoss{"illegal_access", absl::StatusCode::kAborted, AccessIllegally},
                                           DeviceLoss{"out_of_memory", absl::StatusCode::kResourceExhausted,
                                                      TakeTooMuch}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace keval::measure
