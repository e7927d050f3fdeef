#include "core/measure/fresh_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>

#include "core/linear_logp/failure_text.h"
#ifdef KEVAL_CUDA
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <atomic>
#endif

namespace keval::measure {
namespace {

// c10's own CPU allocator with its memory filled. What it returns is that allocator's, so both can free it.
class FillingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr data = c10::GetDefaultCPUAllocator()->allocate(bytes);
    if (data.get() != nullptr) {
      std::memset(data.get(), kFreshByte, bytes);
    }
    return data;
  }
  c10::DeleterFnPtr raw_deleter() const override { return c10::GetDefaultCPUAllocator()->raw_deleter(); }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }
};

constexpr std::uint8_t kPriority = 200;  // Above whatever torch registers.

#ifdef KEVAL_CUDA
std::atomic<bool> filling_device{false};

// Runs under the allocator's lock, in whatever thread allocates: it must not call torch.
void FillOnDevice(const c10::CachingDeviceAllocator::TraceEntry& entry) {
  if (entry.action_ == c10::CachingDeviceAllocator::TraceEntry::ALLOC &&
      filling_device.load(std::memory_order_relaxed)) {
    // In the order of the stream that the memory was asked for on. An error stays the queue's, for its next reader.
    static_cast<void>(cudaMemsetAsync(reinterpret_cast<void*>(entry.addr_),  // NOLINT(performance-no-int-to-ptr)
                                      kFreshByte, entry.size_, static_cast<cudaStream_t>(entry.stream_)));
  }
}
#endif

}  // namespace

absl::StatusOr<std::unique_ptr<FreshMemoryFill>> FreshMemoryFill::Begin(const DeviceSession& session) {
#ifdef KEVAL_CUDA
  if (session.device().cuda) {
    static const absl::Status attached = linear_logp::CatchFailures([] {
      c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(FillOnDevice);
      return absl::OkStatus();
    });
    if (!attached.ok()) {
      return attached;
    }
  }
#endif
  return std::unique_ptr<FreshMemoryFill>(new FreshMemoryFill(!session.device().cuda));
}

FreshMemoryFill::FreshMemoryFill(bool on_cpu) : on_cpu_(on_cpu) {
  if (on_cpu_) {
    static FillingAllocator filling;  // Outlives what it allocated.
    c10::SetCPUAllocator(&filling, kPriority);
  }
#ifdef KEVAL_CUDA
  filling_device = !on_cpu_;
#endif
}

FreshMemoryFill::~FreshMemoryFill() {
  if (on_cpu_) {
    c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), kPriority);  // What it was: nothing here sets another.
  }
#ifdef KEVAL_CUDA
  filling_device = false;
#endif
}

}  // namespace keval::measure
