#include "core/measure/timer.h"

#include <algorithm>
#include <chrono>
#ifdef KEVAL_CUDA
#include <cmath>

#include "core/linear_logp/cuda_status.h"
#endif

namespace keval::measure {
namespace {

class HostTimer : public Timer {
 public:
  absl::Status Start() override {
    start_ = std::chrono::steady_clock::now();
    return absl::OkStatus();
  }
  absl::StatusOr<std::int64_t> StopNs() override {
    const auto elapsed = std::chrono::steady_clock::now() - start_;
    return std::max<std::int64_t>(1, std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
  }

 private:
  std::chrono::steady_clock::time_point start_;
};

#ifdef KEVAL_CUDA
class EventTimer : public Timer {
 public:
  explicit EventTimer(cudaStream_t stream) : stream_(stream) {}
  ~EventTimer() override {
    if (start_ != nullptr) {
      cudaEventDestroy(start_);
    }
    if (stop_ != nullptr) {
      cudaEventDestroy(stop_);
    }
  }
  EventTimer(const EventTimer&) = delete;
  EventTimer& operator=(const EventTimer&) = delete;

  absl::Status Init() {
    if (absl::Status status = linear_logp::CudaStatus(cudaEventCreate(&start_), "create an event"); !status.ok()) {
      return status;
    }
    return linear_logp::CudaStatus(cudaEventCreate(&stop_), "create an event");
  }
  absl::Status Start() override {
    return linear_logp::CudaStatus(cudaEventRecord(start_, stream_), "start of a timed call");
  }
  absl::StatusOr<std::int64_t> StopNs() override {
    cudaError_t error = cudaEventRecord(stop_, stream_);
    if (error == cudaSuccess) {
      error = cudaEventSynchronize(stop_);
    }
    float milliseconds = 0;
    if (error == cudaSuccess) {
      error = cudaEventElapsedTime(&milliseconds, start_, stop_);
    }
    if (absl::Status status = linear_logp::CudaStatus(error, "end of a timed call"); !status.ok()) {
      return status;
    }
    return std::max<std::int64_t>(1, std::llround(static_cast<double>(milliseconds) * 1e6));
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};
#endif

}  // namespace

absl::StatusOr<std::unique_ptr<Timer>> Timer::Create(MemoryPlace place) {
  if (!place.cuda) {
    return std::make_unique<HostTimer>();
  }
#ifdef KEVAL_CUDA
  auto timer = std::make_unique<EventTimer>(static_cast<cudaStream_t>(place.stream));
  if (absl::Status status = timer->Init(); !status.ok()) {
    return status;
  }
  return timer;
#else
  return absl::FailedPreconditionError("this build has no CUDA");
#endif
}

}  // namespace keval::measure
