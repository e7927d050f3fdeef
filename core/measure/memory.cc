#include "core/measure/memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/number.h"
#include "core/linear_logp/cuda_device.h"
#include "core/linear_logp/host_memory.h"
#ifdef KEVAL_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#endif

namespace keval::measure {
namespace {

// Told of every tensor allocated (positive) and freed (negative) on the thread that the guard was made on.
class PeakMeter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*ptr*/, std::int64_t alloc_size, std::size_t /*total_allocated*/,
                         std::size_t /*total_reserved*/, c10::Device device) override {
    if (device.is_cpu()) {
      now_ += alloc_size;
      peak_ = std::max(peak_, now_);
    }
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t peak() const { return peak_; }

 private:
  std::int64_t now_ = 0;
  std::int64_t peak_ = 0;
};

}  // namespace

absl::StatusOr<std::int64_t> IncrementalPeakBytes(const DeviceSession& session,
                                                  const std::function<absl::Status()>& call) {
  if (absl::Status status = session.Synchronize(); !status.ok()) {
    return status;
  }
#ifdef KEVAL_CUDA
  if (session.device().cuda) {
    const auto index = static_cast<c10::DeviceIndex>(session.device().index);
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    c10::cuda::CUDACachingAllocator::resetPeakStats(index);
    const std::int64_t before = c10::cuda::CUDACachingAllocator::getDeviceStats(index).allocated_bytes[kAll].current;
    absl::Status status = call();
    if (status.ok()) {
      status = session.Synchronize();
    }
    if (!status.ok()) {
      return status;
    }
    return c10::cuda::CUDACachingAllocator::getDeviceStats(index).allocated_bytes[kAll].peak - before;
  }
#endif
  const auto meter = std::make_shared<PeakMeter>();
  absl::Status status;
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    status = call();
  }
  if (!status.ok()) {
    return status;
  }
  return meter->peak();
}

std::int64_t HeldBytes(const DeviceSession& session) {
#ifdef KEVAL_CUDA
  if (session.device().cuda) {
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(session.device().index))
               .reserved_bytes[kAll]
               .current +
           session.flush().bytes();
  }
#endif
  static_cast<void>(session);
  std::ifstream statm("/proc/self/statm");
  std::string line;
  std::getline(statm, line);
  const std::vector<std::string> fields = absl::StrSplit(line, ' ');
  const auto pages = fields.size() > 1 ? ParseInt64(fields[1]) : std::nullopt;
  return pages.value_or(0) * sysconf(_SC_PAGESIZE);
}

std::optional<std::int64_t> FreeBytes(const DeviceSession& session) {
  if (session.device().cuda) {
    const absl::StatusOr<std::int64_t> free_bytes = linear_logp::CudaFreeBytes(session.device().index);
    return free_bytes.ok() ? std::optional(*free_bytes) : std::nullopt;
  }
  const std::int64_t free_bytes = linear_logp::ReadHostMemory().free_bytes;
  return free_bytes == std::numeric_limits<std::int64_t>::max() ? std::nullopt : std::optional(free_bytes);
}

}  // namespace keval::measure
