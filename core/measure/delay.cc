#include "core/measure/delay.h"

#include <chrono>
#ifdef KEVAL_CUDA
#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/linear_logp/cuda_status.h"
#include "core/measure/delay_cuda.h"
#endif

namespace keval::measure {
namespace {

using Clock = std::chrono::steady_clock;

class HostDelay : public Delay {
 public:
  explicit HostDelay(double fraction) : fraction_(fraction) {}

  absl::Status Begin() override {
    begin_ = Clock::now();
    return absl::OkStatus();
  }
  absl::Status End() override {
    const Clock::time_point done = Clock::now();
    const std::chrono::duration<double> wait = fraction_ * std::chrono::duration<double>(done - begin_);
    while (Clock::now() - done < wait) {  // Computes, as the arm does: a sleep would give the core away.
    }
    return absl::OkStatus();
  }

 private:
  const double fraction_;
  Clock::time_point begin_;
};

#ifdef KEVAL_CUDA
class DeviceDelay : public Delay {
 public:
  DeviceDelay(void* stream, double fraction) : stream_(stream), fraction_(fraction) {}
  ~DeviceDelay() override { cudaFree(begin_); }
  DeviceDelay(const DeviceDelay&) = delete;
  DeviceDelay& operator=(const DeviceDelay&) = delete;

  absl::Status Init() {
    void* word = nullptr;
    const cudaError_t error = cudaMalloc(&word, sizeof(std::uint64_t));
    begin_ = static_cast<std::uint64_t*>(word);
    return linear_logp::CudaStatus(error, "the word of an injected delay");
  }
  absl::Status Begin() override { return NoteDeviceTime(stream_, begin_); }
  absl::Status End() override { return WaitForFraction(stream_, begin_, fraction_); }

 private:
  void* const stream_;  // A cudaStream_t.
  const double fraction_;
  std::uint64_t* begin_ = nullptr;  // On the device, ours.
};
#endif

}  // namespace

absl::StatusOr<std::unique_ptr<Delay>> Delay::Create(MemoryPlace place, double fraction) {
  if (!place.cuda) {
    return std::make_unique<HostDelay>(fraction);
  }
#ifdef KEVAL_CUDA
  auto delay = std::make_unique<DeviceDelay>(place.stream, fraction);
  if (absl::Status status = delay->Init(); !status.ok()) {
    return status;
  }
  return delay;
#else
  return absl::FailedPreconditionError("this build has no CUDA");
#endif
}

}  // namespace keval::measure
