// Overwrites a buffer the size of the L2 with 16-byte stores that stay in the L2 (write-back), which pushes out what
// was there. One write of each byte; no result.
#include <cuda_runtime.h>

#include "core/linear_logp/cuda_status.h"
#include "core/measure/l2_flush_cuda.h"

namespace keval::measure {
namespace {

__global__ void OverwriteKernel(uint4* buffer, std::int64_t count) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    buffer[i] = make_uint4(0, 0, 0, 0);
  }
}

}  // namespace

absl::Status OverwriteOnDevice(void* stream, void* buffer, std::int64_t bytes) {
  constexpr int kBlocks = 1024;
  constexpr int kThreads = 256;
  OverwriteKernel<<<kBlocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<uint4*>(buffer), bytes / static_cast<std::int64_t>(sizeof(uint4)));
  return linear_logp::CudaStatus(cudaGetLastError(), "overwrite the L2");
}

}  // namespace keval::measure
