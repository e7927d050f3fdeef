#include "core/measure/device_session.h"

#include <ATen/Parallel.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/linear_logp/failure_text.h"
#include "core/linear_logp/numerics.h"
#ifdef KEVAL_CUDA
#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <optional>

#include "core/linear_logp/cuda_status.h"
#include "core/linear_logp/gpu_uuid.h"
#endif

namespace keval::measure {

struct DeviceSession::State {
  linear_logp::Device device;
  int threads = 1;
  RunningMark own_mark = Running::kHarness;  // Where the caller has none.
  RunningMark* mark = &own_mark;
  MemoryPlace place;
  std::string uuid;
#ifdef KEVAL_CUDA
  std::optional<c10::cuda::CUDAStreamGuard> stream_guard;
#endif
  std::unique_ptr<Timer> timer;
  std::unique_ptr<L2Flush> flush;
  std::unique_ptr<Nvml> nvml;
  std::string nvml_note;
};

DeviceSession::DeviceSession(std::unique_ptr<State> state) : state_(std::move(state)) {}
DeviceSession::~DeviceSession() = default;

absl::StatusOr<std::unique_ptr<DeviceSession>> DeviceSession::Open(const linear_logp::Device& device, int threads,
                                                                   RunningMark* mark) {
  auto state = std::make_unique<State>();
  if (mark != nullptr) {
    state->mark = mark;
  }
  state->device = device;
  state->threads = threads;
  absl::Status status = linear_logp::CatchFailures([&state, &device, threads] {
    at::set_num_threads(threads);
    linear_logp::SetReproducibleNumerics();
    if (!device.cuda) {
      state->nvml_note = "a CPU has no NVML readings";
      return absl::OkStatus();
    }
#ifdef KEVAL_CUDA
    const int count = c10::cuda::device_count();
    if (device.index < 0 || device.index >= count) {
      return absl::FailedPreconditionError(
          absl::StrCat("there is no device ", device.Name(), ": ", count, " CUDA devices found"));
    }
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    state->stream_guard.emplace(
        c10::cuda::getStreamFromPool(/*isHighPriority=*/false, static_cast<c10::DeviceIndex>(device.index)));
    state->place = {true, state->stream_guard->current_stream().stream()};
    cudaDeviceProp properties{};
    if (absl::Status told =
            linear_logp::CudaStatus(cudaGetDeviceProperties(&properties, device.index), "device properties");
        !told.ok()) {
      return told;
    }
    state->uuid = linear_logp::GpuUuidText({properties.uuid.bytes, sizeof(properties.uuid.bytes)});
    absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Open(state->uuid);
    if (nvml.ok()) {
      state->nvml = *std::move(nvml);
    } else {
      state->nvml_note = std::string(nvml.status().message());
    }
    return absl::OkStatus();
#else
    return absl::FailedPreconditionError(absl::StrCat("this build has no CUDA, so no ", device.Name()));
#endif
  });
  if (!status.ok()) {
    return status;
  }
  absl::StatusOr<std::unique_ptr<Timer>> timer = Timer::Create(state->place);
  if (!timer.ok()) {
    return timer.status();
  }
  absl::StatusOr<std::unique_ptr<L2Flush>> flush = L2Flush::Create(state->place);
  if (!flush.ok()) {
    return flush.status();
  }
  state->timer = *std::move(timer);
  state->flush = *std::move(flush);
  return std::unique_ptr<DeviceSession>(new DeviceSession(std::move(state)));
}

const linear_logp::Device& DeviceSession::device() const { return state_->device; }
MemoryPlace DeviceSession::place() const { return state_->place; }
Timer& DeviceSession::timer() const { return *state_->timer; }
L2Flush& DeviceSession::flush() const { return *state_->flush; }
int DeviceSession::threads() const { return state_->threads; }
const std::string& DeviceSession::uuid() const { return state_->uuid; }
const Nvml* DeviceSession::nvml() const { return state_->nvml.get(); }
const std::string& DeviceSession::NvmlNote() const { return state_->nvml_note; }

void DeviceSession::MarkRunning(Running who) const { state_->mark->store(who, std::memory_order_relaxed); }

absl::Status DeviceSession::Synchronize() const {
#ifdef KEVAL_CUDA
  if (state_->place.cuda) {
    return linear_logp::CudaStatus(cudaDeviceSynchronize(), "wait for the device");
  }
#endif
  return absl::OkStatus();
}

DeviceReading DeviceSession::Read() const { return state_->nvml == nullptr ? DeviceReading() : state_->nvml->Read(); }

void DeviceSession::UseNvmlForTest(std::unique_ptr<Nvml> nvml) { state_->nvml = std::move(nvml); }

absl::Status DeviceSession::Explained(absl::Status status) const {
  const bool may_be_loss = absl::IsAborted(status) || absl::IsInternal(status);
  if (!may_be_loss || state_->nvml == nullptr || !state_->nvml->IsLost()) {
    return status;
  }
  return absl::UnavailableError(absl::StrCat("NVML says that the GPU is lost: ", status.message()));
}

std::uint64_t DeviceSession::ThrottleReasons() const {
  return state_->nvml == nullptr ? 0 : state_->nvml->ThrottleReasons();
}

}  // namespace keval::measure
