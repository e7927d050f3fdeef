#include "tests/gpu/spin_kernel.h"

#include <cuda_runtime.h>

namespace keval::testing {
namespace {

__device__ std::uint64_t DeviceNs() {
  std::uint64_t ns = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

__global__ void SpinKernel(std::uint64_t ns) {
  const std::uint64_t begin = DeviceNs();
  while (DeviceNs() - begin < ns) {
  }
}

__global__ void WriteOutsideKernel(std::uintptr_t address) { *reinterpret_cast<volatile int*>(address) = 1; }

}  // namespace

void Spin(void* stream, std::uint64_t ns) { SpinKernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(ns); }

void WriteOutside(void* stream) {
  constexpr std::uintptr_t kNothingThere = 64;
  WriteOutsideKernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(kNothingThere);
}

}  // namespace keval::testing
