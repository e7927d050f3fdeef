#include "core/measure/l2_flush.h"

#include "absl/strings/str_cat.h"
#ifdef KEVAL_CUDA
#include "core/linear_logp/cuda_status.h"
#include "core/measure/l2_flush_cuda.h"
#endif

namespace keval::measure {

absl::StatusOr<std::unique_ptr<L2Flush>> L2Flush::Create(MemoryPlace place) {
  if (!place.cuda) {
    return std::unique_ptr<L2Flush>(new L2Flush(place, nullptr, 0));
  }
#ifdef KEVAL_CUDA
  int device = 0;
  int l2_bytes = 0;
  void* buffer = nullptr;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device);
  }
  if (error == cudaSuccess && l2_bytes > 0) {
    error = cudaMalloc(&buffer, static_cast<std::size_t>(l2_bytes));
  }
  if (absl::Status status = linear_logp::CudaStatus(error, "the buffer that overwrites the L2"); !status.ok()) {
    return status;
  }
  return std::unique_ptr<L2Flush>(new L2Flush(place, Buffer(buffer), l2_bytes));
#else
  return absl::FailedPreconditionError("this build has no CUDA");
#endif
}

void L2Flush::Free::operator()(void* buffer) const {
#ifdef KEVAL_CUDA
  cudaFree(buffer);
#else
  static_cast<void>(buffer);
#endif
}

absl::Status L2Flush::Run() const {
  if (bytes_ == 0) {
    return absl::OkStatus();
  }
#ifdef KEVAL_CUDA
  return OverwriteOnDevice(place_.stream, buffer_.get(), bytes_);
#else
  return absl::OkStatus();
#endif
}

std::string L2Flush::Description() const {
  return bytes_ == 0 ? "none: a CPU's caches are not overwritten"
                     : absl::StrCat(bytes_, " bytes (the device's L2) overwritten before each call");
}

}  // namespace keval::measure
