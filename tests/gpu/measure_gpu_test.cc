// What only a GPU can show of core/measure: device events, the L2 overwrite, the allocator's peak, kernel names, NVML.
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "core/linear_logp/cuda_status.h"
#include "core/linear_logp/engine.h"
#include "core/measure/arm.h"
#include "core/measure/block_runner.h"
#include "core/measure/delay.h"
#include "core/measure/device_session.h"
#include "core/measure/dram_counter.h"
#include "core/measure/environment.h"
#include "core/measure/kernel_trace.h"
#include "core/measure/memory.h"
#include "core/measure/op_counter.h"
#include "server/worker_round_collector.h"
#include "tests/gpu/spin_kernel.h"

namespace keval::measure {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CudaStatusTest, GoesByTheErrorsNumber) {
  const auto code = [](cudaError_t error) {
    return linear_logp::CudaStatus(error, "uncorrectable ecc, out of memory").code();
  };
  EXPECT_EQ(code(cudaSuccess), absl::StatusCode::kOk);
  EXPECT_EQ(code(cudaErrorMemoryAllocation), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code(cudaErrorECCUncorrectable), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(cudaErrorDevicesUnavailable), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(cudaErrorIllegalAddress), absl::StatusCode::kAborted);
  EXPECT_EQ(code(cudaErrorLaunchFailure), absl::StatusCode::kAborted);
  EXPECT_EQ(code(cudaErrorInvalidValue), absl::StatusCode::kInternal);
}

class MeasureGpuTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      return;
    }
    auto session = DeviceSession::Open({true, 0}, 1);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = session->release();
  }
  static void TearDownTestSuite() {
    delete session_;
    session_ = nullptr;
  }
  void SetUp() override {
    if (session_ == nullptr) {
      GTEST_SKIP() << "no CUDA device";
    }
  }

  static at::TensorOptions OnDevice(at::ScalarType type) {
    return at::TensorOptions().device(c10::Device(c10::kCUDA, 0)).dtype(type);
  }

  template <typename Work>
  static std::int64_t TimeNs(const Work& work) {
    EXPECT_TRUE(session_->Synchronize().ok());
    EXPECT_TRUE(session_->timer().Start().ok());
    work();
    const auto ns = session_->timer().StopNs();
    EXPECT_TRUE(ns.ok()) << ns.status();
    return ns.value_or(0);
  }

  static DeviceSession* session_;
};
DeviceSession* MeasureGpuTest::session_ = nullptr;

TEST_F(MeasureGpuTest, TheTimerReadsAKernelOfKnownDuration) {
  TimeNs([] { testing::Spin(session_->place().stream, 1000); });  // The module loads.
  for (const std::uint64_t ns : {200'000U, 2'000'000U, 20'000'000U}) {
    const std::int64_t read = TimeNs([ns] { testing::Spin(session_->place().stream, ns); });
    EXPECT_GE(read, static_cast<std::int64_t>(ns) * 98 / 100);
    EXPECT_LE(read, static_cast<std::int64_t>(ns) + 150'000);  // A launch, and the device clock's step.
  }
}

// Of the least effect that a calibration injects, 0.3 % of a call of 2 ms, a sixth is lost at most: what both arms pay
// cancels. The three take turns, as blocks do: a launch takes longer while the clock rises.
TEST_F(MeasureGpuTest, AnInjectedDelayIsItsPartOfTheCall) {
  constexpr std::int64_t kCallNs = 2'000'000;
  constexpr std::array<double, 3> kFractions = {0, 0.003, 0.5};
  std::array<std::unique_ptr<Delay>, kFractions.size()> delays;
  for (std::size_t i = 0; i < delays.size(); ++i) {
    auto delay = Delay::Create(session_->place(), kFractions[i]);
    ASSERT_TRUE(delay.ok()) << delay.status();
    delays[i] = *std::move(delay);
  }
  std::array<std::vector<std::int64_t>, kFractions.size()> times;
  constexpr int kRepetitions = 401;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    for (std::size_t i = 0; i < delays.size(); ++i) {
      times[i].push_back(TimeNs([&delay = *delays[i]] {
        EXPECT_TRUE(delay.Begin().ok());
        testing::Spin(session_->place().stream, kCallNs);
        EXPECT_TRUE(delay.End().ok());
      }));
    }
  }
  std::array<double, kFractions.size()> medians{};
  for (std::size_t i = 0; i < medians.size(); ++i) {
    std::nth_element(times[i].begin(), times[i].begin() + kRepetitions / 2, times[i].end());
    medians[i] = static_cast<double>(times[i][kRepetitions / 2]);
    RecordProperty(absl::StrCat("median_ns_", i), absl::StrCat(times[i][kRepetitions / 2]));
  }
  EXPECT_LE(medians[0], kCallNs + 100'000);
  for (std::size_t i = 1; i < medians.size(); ++i) {
    // The part is of what the call took: the spin and its launch.
    EXPECT_GE(medians[i] - medians[0], kFractions[i] * kCallNs - 1'000) << kFractions[i];
    EXPECT_LE(medians[i] - medians[0], kFractions[i] * medians[0] + 1'000) << kFractions[i];
  }
}

TEST_F(MeasureGpuTest, TheOverwriteMakesTheCacheCold) {
  int l2_bytes = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, 0), cudaSuccess);
  EXPECT_EQ(session_->flush().bytes(), l2_bytes);
  const at::Tensor data = at::ones({l2_bytes / 4 / 4}, OnDevice(at::kFloat));  // A quarter of it.
  std::vector<std::int64_t> hot;
  std::vector<std::int64_t> cold;
  for (int i = 0; i < 30; ++i) {
    at::sum(data);
    hot.push_back(TimeNs([&data] { at::sum(data); }));
    ASSERT_TRUE(session_->flush().Run().ok());
    cold.push_back(TimeNs([&data] { at::sum(data); }));
  }
  std::nth_element(hot.begin(), hot.begin() + 15, hot.end());
  std::nth_element(cold.begin(), cold.begin() + 15, cold.end());
  EXPECT_GT(static_cast<double>(cold[15]), 1.05 * static_cast<double>(hot[15])) << cold[15] << " " << hot[15];
}

TEST_F(MeasureGpuTest, PeakIsTheAllocatorsAndStartsAnewEachTime) {
  at::Tensor kept;
  const auto call = [&kept] {
    kept = at::empty({1 << 20}, OnDevice(at::kFloat));
    const at::Tensor scratch = at::empty({1 << 19}, OnDevice(at::kFloat));
    return absl::OkStatus();
  };
  for (int i = 0; i < 2; ++i) {
    kept.reset();
    const auto peak = IncrementalPeakBytes(*session_, call);
    ASSERT_TRUE(peak.ok()) << peak.status();
    EXPECT_EQ(*peak, (4 << 20) + (2 << 20));
  }
}

TEST_F(MeasureGpuTest, KernelsAreCountedByName) {
  const at::Tensor a = at::ones({256, 256}, OnDevice(at::kFloat));
  at::mm(a, a);
  const auto counts = TraceKernels(*session_, [&a] {
    for (int i = 0; i < 3; ++i) {
      at::mm(a, a);
    }
    return session_->flush().Run();
  });
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ(counts->at("keval::measure::OverwriteKernel").count, 1);
  EXPECT_GT(counts->at("keval::measure::OverwriteKernel").ns, 1000);
  std::int64_t others = 0;
  for (const auto& [name, sum] : *counts) {
    others += name == "keval::measure::OverwriteKernel" ? 0 : sum.count;
  }
  EXPECT_GE(others, 3);
  const auto nothing = TraceKernels(*session_, [] { return absl::OkStatus(); });
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  EXPECT_THAT(*nothing, ::testing::IsEmpty());
}

// Where the counters are to be had they count: 512 MiB can't come from a cache of tens. Where they aren't, it says why.
TEST_F(MeasureGpuTest, DramBytesAreThoseOfTheCallOrAbsentWithAReason) {
  constexpr std::int64_t kElements = std::int64_t{128} << 20;
  const at::Tensor data = at::ones({kElements}, OnDevice(at::kFloat));
  at::sum(data);
  const auto bytes = CountDramBytes(*session_, [&data] {
    at::sum(data);
    return absl::OkStatus();
  });
  if (!bytes.ok()) {
    EXPECT_EQ(bytes.status().code(), absl::StatusCode::kUnavailable) << bytes.status();
    EXPECT_FALSE(bytes.status().message().empty());
    RecordProperty("dram_counters", std::string(bytes.status().message()));
    return;
  }
  RecordProperty("dram_read_bytes", absl::StrCat(bytes->read));
  EXPECT_GT(static_cast<double>(bytes->read), 0.95 * 4 * kElements);
  EXPECT_LT(static_cast<double>(bytes->read), 1.2 * 4 * kElements);
  EXPECT_LT(static_cast<double>(bytes->written), 0.2 * 4 * kElements);
}

TEST_F(MeasureGpuTest, NvmlIsAskedAboutTheDeviceThatCudaUses) {
  EXPECT_THAT(session_->uuid(), StartsWith("GPU-"));
  ASSERT_NE(session_->nvml(), nullptr) << session_->NvmlNote();
  cudaDeviceProp properties{};
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_EQ(session_->nvml()->Describe().at("gpu_model"), properties.name);
  const DeviceReading reading = session_->Read();
  EXPECT_GT(reading.sm_clock_mhz, 100);
  EXPECT_GT(reading.power_watts, 10);
  EXPECT_GT(reading.temperature_celsius, 5);
  const auto facts = DescribeEnvironment(*session_);
  EXPECT_EQ(facts.at("gpu_uuid"), session_->uuid());
  EXPECT_THAT(facts.at("cache_overwrite"), HasSubstr("bytes"));
  for (const auto& [name, text] : facts) {
    RecordProperty(name, text);
  }
}

TEST_F(MeasureGpuTest, ValuesAndDigestsAreTheHosts) {
  constexpr std::int64_t kCount = 100'003;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    const std::int64_t bytes = kCount * DTypeSize(dtype);
    std::vector<std::uint64_t> host(static_cast<std::size_t>(bytes / 8 + 1));
    const at::Tensor device = at::empty({bytes}, OnDevice(at::kByte));
    ASSERT_TRUE(FillNormal({}, host.data(), dtype, kCount, 5, 3, 0.7).ok());
    ASSERT_TRUE(FillNormal(session_->place(), device.data_ptr(), dtype, kCount, 5, 3, 0.7).ok());
    const auto expected = Digest({}, host.data(), bytes);
    const auto digest = Digest(session_->place(), device.const_data_ptr(), bytes);
    ASSERT_TRUE(digest.ok()) << digest.status();
    EXPECT_EQ(*digest, *expected) << DTypeName(dtype);
  }
}

TEST_F(MeasureGpuTest, BlocksOfBothProductionPathsVerify) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (const Region region : {Region::kForwardBackward, Region::kBackward, Region::kWeightGradient}) {
      ArmSpec spec;
      spec.variant = "portable_addmm";
      spec.num_tokens = 512;
      spec.hidden_size = 256;
      spec.vocab_size = 5000;
      spec.dtype = dtype;
      spec.bias = true;
      spec.chunk_elems = 128 * 5000;
      auto arm = Arm::Create(spec, 1, session_);
      ASSERT_TRUE(arm.ok()) << arm.status();
      ASSERT_TRUE((*arm)->Prepare("portable_matmul_add", region).ok());
      for (int i = 0; i < 2; ++i) {
        const auto block = RunBlock({2, 5}, *session_, arm->get());
        ASSERT_TRUE(block.ok()) << block.status();
        EXPECT_EQ(block->ns.size(), 5U);
      }
    }
  }
}

server::WorkerRoundCollector::Options WithTheBundlesWorker() {
  server::WorkerRoundCollector::Options options;
  options.worker_program = KEVAL_BIN_DIR "/keval-worker";
  return options;
}

server::JobArms ProductionPaths() {
  server::JobArms arms;
  arms.base_variant = "portable_matmul_add";
  arms.candidate_variant = "portable_addmm";
  arms.device = "cuda:0";
  return arms;
}

TEST_F(MeasureGpuTest, ARoundWithWorkersOnTheDevice) {
  server::WorkerRoundCollector collector(WithTheBundlesWorker());
  const server::JobArms arms = ProductionPaths();
  server::SeriesRun run;
  run.series = "1024x2048x32768/bfloat16/bias";
  run.shape.num_tokens = 1024;
  run.shape.hidden_size = 2048;
  run.shape.vocab_size = 32768;
  run.shape.dtype = DType::kBFloat16;
  run.shape.bias = true;
  run.quads = 3;
  server::SeriesRun control = run;
  control.series = "ctl:" + run.series;
  control.role = verdict::Role::kControl;
  const auto result = collector.Round(arms, {run, control}, 0, nullptr, nullptr);
  ASSERT_TRUE(result.ok()) << result.status();
  const auto* const failure = std::get_if<server::WorkFailure>(&*result);
  ASSERT_EQ(failure, nullptr) << failure->cause << " " << failure->reason << ": " << failure->detail;
  const auto& data = std::get<server::RoundData>(*result);
  EXPECT_EQ(data.samples.size(), 2U * 3 * 4 * 5);
  EXPECT_GT(data.blocks.at(0).after.sm_clock_mhz, 100);
  EXPECT_GT(data.evidence.at(0).base_peak_bytes, std::int64_t{32768} * 2048 * 4);
  RecordProperty("round_seconds", std::to_string(static_cast<int>(data.seconds)));
  for (const auto& block : data.blocks) {
    EXPECT_FALSE(IsThrottled(block.after.throttle_reasons)) << ThrottleReasonsText(block.after.throttle_reasons);
  }
  // None of ours is among them; who is, is for a reader of the results.
  RecordProperty("other_processes", data.blocks.back().after.other_processes);
  RecordProperty("processes", ProcessesText(session_->Read()));
}

TEST_F(MeasureGpuTest, ThePilotMeasuresAContextAndWhatIsFree) {
  server::WorkerRoundCollector collector(WithTheBundlesWorker());
  server::SeriesRun run;
  run.series = "1024x2048x32768/bfloat16/bias";
  run.shape.num_tokens = 1024;
  run.shape.hidden_size = 2048;
  run.shape.vocab_size = 32768;
  run.shape.dtype = DType::kBFloat16;
  run.shape.bias = true;
  server::DeviceLease lease;
  const auto result = collector.Pilot(ProductionPaths(), {run}, &lease, [] { return absl::OkStatus(); });
  ASSERT_TRUE(result.ok()) << result.status();
  const auto* const failure = std::get_if<server::WorkFailure>(&*result);
  ASSERT_EQ(failure, nullptr) << failure->cause << " " << failure->reason << ": " << failure->detail;
  const auto& pilot = std::get<server::PilotData>(*result);
  const server::WorkerBytes& bytes = pilot.bytes.at(run.series);
  EXPECT_FALSE(bytes.context_assumed);
  EXPECT_GT(bytes.context, 64.0 * (1 << 20));
  EXPECT_LT(bytes.context, 4096.0 * (1 << 20));
  EXPECT_GT(bytes.peak, 2048.0 * 32768 * 4);
  ASSERT_TRUE(pilot.free_bytes.has_value());
  EXPECT_GT(*pilot.free_bytes, bytes.context);
  EXPECT_GT(pilot.candidate_turns.at(run.series).repetition, pilot.base_ns.at(run.series) * 0.5e-9);
  RecordProperty("context_mib", std::to_string(static_cast<int>(bytes.context / (1 << 20))));
}

// Fresh processes, whose only device is the named one: NVML still counts all, and is asked for the same.
TEST_F(MeasureGpuTest, NvmlsDeviceIsCudasAlsoUnderCudaVisibleDevices) {
  constexpr char kVariable[] = "CUDA_VISIBLE_DEVICES";
  const char* const set = std::getenv(kVariable);
  const std::optional<std::string> before = set == nullptr ? std::nullopt : std::optional<std::string>(set);
  const absl::Cleanup restore = [&] {
    if (before) {
      setenv(kVariable, before->c_str(), 1);
    } else {
      unsetenv(kVariable);
    }
  };
  server::WorkerRoundCollector collector(WithTheBundlesWorker());
  const server::JobArms arms = ProductionPaths();
  for (const linear_logp::DeviceDescription& device : linear_logp::ListDevices().devices) {
    if (!device.device.cuda) {
      continue;
    }
    std::vector<std::string> names = {device.uuid};
    if (!before) {  // Else the numbers here aren't the machine's.
      names.push_back(absl::StrCat(device.device.index));
    }
    for (const std::string& name : names) {
      setenv(kVariable, name.c_str(), 1);
      const auto environment = collector.Environment(arms, nullptr);
      ASSERT_TRUE(environment.ok()) << environment.status();
      const auto* const facts = std::get_if<std::map<std::string, std::string>>(&*environment);
      ASSERT_NE(facts, nullptr) << std::get<server::WorkFailure>(*environment).detail;
      EXPECT_EQ(facts->at("gpu_uuid"), device.uuid) << name;
      EXPECT_EQ(facts->at("nvml"), "loaded; device matched by UUID") << name;
      EXPECT_EQ(facts->at("gpu_model"), device.model) << name;
    }
  }
}

}  // namespace
}  // namespace keval::measure
