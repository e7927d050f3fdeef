#include "core/linear_logp/cuda_device.h"

#include "absl/strings/str_cat.h"

#if KEVAL_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#endif

namespace keval::linear_logp {

#if KEVAL_CUDA
namespace {

absl::Status CannotAsk(int index, cudaError_t error) {
  return absl::FailedPreconditionError(absl::StrCat("cuda:", index, " can't be used: ", cudaGetErrorString(error)));
}

// "GPU-" and the UUID's 16 bytes in groups of 4, 2, 2, 2 and 6.
std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    absl::StrAppend(&text, absl::Hex(static_cast<unsigned char>(uuid.bytes[i]), absl::kZeroPad2));
  }
  return text;
}

}  // namespace

int CudaDeviceCount(std::string* note) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    *note = absl::StrCat("built with CUDA, no device found: ", cudaGetErrorString(error));
    return 0;
  }
  if (count == 0) *note = "built with CUDA, no device found: the driver lists none";
  return count;
}

absl::StatusOr<DeviceDescription> DescribeCudaDevice(int index) {
  cudaDeviceProp properties{};
  cudaError_t error = cudaGetDeviceProperties(&properties, index);
  if (error != cudaSuccess) return CannotAsk(index, error);
  const absl::StatusOr<std::int64_t> free_bytes = CudaFreeBytes(index);
  if (!free_bytes.ok()) return free_bytes.status();
  return DeviceDescription{.device = {.cuda = true, .index = index},
                           .model = properties.name,
                           .uuid = UuidText(properties.uuid),
                           .compute_capability = absl::StrCat(properties.major, ".", properties.minor),
                           .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
                           .free_bytes = *free_bytes};
}

absl::StatusOr<std::int64_t> CudaFreeBytes(int index) {
  try {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    const cudaError_t error = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (error != cudaSuccess) return CannotAsk(index, error);
    std::int64_t cached = 0;
    // The allocator has no figures before the first tensor was made.
    if (c10::cuda::CUDACachingAllocator::get()->initialized()) {
      const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(index));
      const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
      cached = stats.reserved_bytes.at(all).current - stats.allocated_bytes.at(all).current;
    }
    return static_cast<std::int64_t>(free_bytes) + std::max<std::int64_t>(0, cached);
  } catch (const c10::Error&) {
    return CannotAsk(index, cudaGetLastError());
  }
}

absl::Status CudaStickyError(int index) {
  static_cast<void>(cudaGetLastError());
  cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess) return absl::OkStatus();
  // An error that lasts is answered again, after the runtime was told to forget it.
  static_cast<void>(cudaGetLastError());
  error = cudaDeviceSynchronize();
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("cuda:", index, " is lost: ", cudaGetErrorString(error)));
}

void ReleaseCudaCache() {
  try {
    c10::cuda::CUDACachingAllocator::emptyCache();
  } catch (const c10::Error&) {
    // The device is lost: CudaStickyError says so.
    static_cast<void>(cudaGetLastError());
  }
}

#else

namespace {
absl::Status NoCuda() { return absl::FailedPreconditionError("this build has no CUDA"); }
}  // namespace

int CudaDeviceCount(std::string* note) {
  note->clear();
  return 0;
}

absl::StatusOr<DeviceDescription> DescribeCudaDevice(int /*index*/) { return NoCuda(); }

absl::StatusOr<std::int64_t> CudaFreeBytes(int /*index*/) { return NoCuda(); }

absl::Status CudaStickyError(int /*index*/) { return absl::OkStatus(); }

void ReleaseCudaCache() {}

#endif

}  // namespace keval::linear_logp
