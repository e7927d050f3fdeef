#include "core/measure/fresh_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>

#include "core/measure/failure_text.h"
#ifdef KEVAL_CUDA
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "core/measure/cuda_status.h"
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
absl::Status FillFreeDeviceMemory(const DeviceSession& session) {
  return CatchFailures([&session] {
    constexpr std::int64_t kSmallBytes = std::int64_t{1} << 19;  // Torch serves up to 1 MiB from blocks of their own.
    constexpr int kSmallBlocks = 64;
    const auto index = static_cast<c10::DeviceIndex>(session.device().index);
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto allocated = c10::cuda::CUDACachingAllocator::getDeviceStats(index).allocated_bytes[kAll];
    if (absl::Status status = session.Synchronize(); !status.ok()) {
      return status;
    }
    c10::cuda::CUDACachingAllocator::emptyCache();
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    if (absl::Status status = CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "free memory"); !status.ok()) {
      return status;
    }
    std::vector<at::Tensor> blocks;
    const auto fill = [&](std::int64_t bytes) {
      blocks.push_back(at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(c10::Device(c10::kCUDA, index))));
      return CudaStatus(cudaMemsetAsync(blocks.back().data_ptr(), kFreshByte, static_cast<std::size_t>(bytes),
                                        static_cast<cudaStream_t>(session.place().stream)),
                        "fill free memory");
    };
    absl::Status status;
    for (int i = 0; i < kSmallBlocks && status.ok(); ++i) {
      status = fill(kSmallBytes);
    }
    // Other processes of the round need memory too: never more than half of what is free.
    const std::int64_t wanted = std::min(allocated.peak - allocated.current, static_cast<std::int64_t>(free_bytes / 2));
    if (status.ok() && wanted > 0) {
      status = fill(wanted);
    }
    return status;
  });
}
#endif

}  // namespace

absl::StatusOr<std::unique_ptr<FreshMemoryFill>> FreshMemoryFill::Begin(const DeviceSession& session) {
#ifdef KEVAL_CUDA
  if (session.device().cuda) {
    if (absl::Status status = FillFreeDeviceMemory(session); !status.ok()) {
      return status;
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
}

FreshMemoryFill::~FreshMemoryFill() {
  if (on_cpu_) {
    c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), kPriority);  // What it was: nothing here sets another.
  }
}

}  // namespace keval::measure
