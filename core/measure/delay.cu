// One thread each: a store of the device's clock, and a wait for it. %globaltimer is the one clock that all
// multiprocessors share; cycle counters of two of them can't be compared.
#include <cuda_runtime.h>

#include "core/linear_logp/cuda_status.h"
#include "core/measure/delay_cuda.h"

namespace keval::measure {
namespace {

__device__ std::uint64_t DeviceNs() {
  std::uint64_t ns = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

__global__ void NoteKernel(std::uint64_t* begin) { *begin = DeviceNs(); }

__global__ void WaitKernel(const std::uint64_t* begin, double fraction) {
  const std::uint64_t now = DeviceNs();
  const auto wait = static_cast<std::uint64_t>(fraction * static_cast<double>(now - *begin) + 0.5);
  while (DeviceNs() - now < wait) {
  }
}

}  // namespace

absl::Status NoteDeviceTime(void* stream, std::uint64_t* begin) {
  NoteKernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(begin);
  return linear_logp::CudaStatus(cudaGetLastError(), "begin of an injected delay");
}

absl::Status WaitForFraction(void* stream, const std::uint64_t* begin, double fraction) {
  WaitKernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(begin, fraction);
  return linear_logp::CudaStatus(cudaGetLastError(), "injected delay");
}

}  // namespace keval::measure
