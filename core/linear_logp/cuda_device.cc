#include "core/linear_logp/cuda_device.h"

#include "absl/strings/str_cat.h"
#include "base/text.h"

#if KEVAL_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "core/linear_logp/cuda_status.h"
#include "core/linear_logp/gpu_uuid.h"
#endif

namespace keval::linear_logp {

std::string NoCudaDeviceNote(int driver_version, absl::string_view error, const char* visible_devices) {
  std::string note = absl::StrCat("built with CUDA, no device found: ",
                                  driver_version == 0 ? "no NVIDIA driver is installed" : PrintableText(error));
  if (visible_devices != nullptr) {
    absl::StrAppend(&note, "; CUDA_VISIBLE_DEVICES is \"", PrintableText(visible_devices, 256), "\"");
  }
  return note;
}

#if KEVAL_CUDA
namespace {

absl::Status CannotAsk(int index, cudaError_t error) {
  return absl::FailedPreconditionError(absl::StrCat("cuda:", index, " can't be used: ", cudaGetErrorString(error)));
}

// Waits for the device.
cudaError_t LastingError(int index) {
  static_cast<void>(cudaGetLastError());
  cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  if (error == cudaSuccess) return cudaSuccess;
  // An error that lasts is answered again, after the runtime was told to forget it.
  static_cast<void>(cudaGetLastError());
  return cudaDeviceSynchronize();
}

}  // namespace

int CudaDeviceCount(std::string* note) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  static_cast<void>(cudaGetLastError());
  int driver_version = 0;
  static_cast<void>(cudaDriverGetVersion(&driver_version));  // 0 where it fails.
  *note = NoCudaDeviceNote(driver_version, error == cudaSuccess ? "the driver lists none" : cudaGetErrorString(error),
                           std::getenv("CUDA_VISIBLE_DEVICES"));
  return 0;
}

absl::StatusOr<DeviceDescription> DescribeCudaDevice(int index) {
  cudaDeviceProp properties{};
  cudaError_t error = cudaGetDeviceProperties(&properties, index);
  if (error != cudaSuccess) return CannotAsk(index, error);
  const absl::StatusOr<std::int64_t> free_bytes = CudaFreeBytes(index);
  if (!free_bytes.ok()) return free_bytes.status();
  return DeviceDescription{.device = {.cuda = true, .index = index},
                           .model = properties.name,
                           .uuid = GpuUuidText({properties.uuid.bytes, sizeof(properties.uuid.bytes)}),
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
  const cudaError_t error = LastingError(index);
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("cuda:", index, " is lost: ", cudaGetErrorString(error)));
}

absl::Status CudaLoss(int index) {
  const cudaError_t error = LastingError(index);
  const absl::Status status = CudaStatus(error, absl::StrCat("cuda:", index, " is lost"));
  return status.ok() || absl::IsUnavailable(status) ? status : absl::AbortedError(status.message());
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

absl::Status CudaLoss(int /*index*/) { return absl::OkStatus(); }

void ReleaseCudaCache() {}

#endif

}  // namespace keval::linear_logp
