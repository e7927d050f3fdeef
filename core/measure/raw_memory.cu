// Grid-stride kernels over plain memory: one read or one write of each byte, deterministic (integer sums), any size.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/linear_logp/cuda_status.h"
#include "core/measure/counter_generator.h"
#include "core/measure/raw_memory_cuda.h"

namespace keval::measure {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxBlocks = 4096;  // A few waves of every device; the stride does the rest.

int BlocksFor(std::int64_t items) {
  return static_cast<int>(std::clamp<std::int64_t>((items + kThreads - 1) / kThreads, 1, kMaxBlocks));
}

__device__ std::int64_t FirstItem() { return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ std::int64_t Stride() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

template <typename T>
__device__ T FromFloat(float value);
template <>
__device__ float FromFloat<float>(float value) {
  return value;
}
template <>
__device__ double FromFloat<double>(float value) {
  return value;
}
template <>
__device__ __nv_bfloat16 FromFloat<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __half FromFloat<__half>(float value) {
  return __float2half_rn(value);
}

template <typename T>
__global__ void FillNormalKernel(T* data, std::int64_t count, std::uint64_t seed, std::uint64_t first_index,
                                 float unit_scale) {
  for (std::int64_t i = FirstItem(); i < count; i += Stride()) {
    data[i] = FromFloat<T>(NearlyNormal(CounterBits(seed, first_index + static_cast<std::uint64_t>(i)), unit_scale));
  }
}

__global__ void FillTargetsKernel(std::int64_t* data, std::int64_t count, std::uint64_t seed, std::uint64_t limit) {
  for (std::int64_t i = FirstItem(); i < count; i += Stride()) {
    data[i] = static_cast<std::int64_t>(CounterBits(seed, static_cast<std::uint64_t>(i)) % limit);
  }
}

// Whole words only; the host adds the tail.
__global__ void DigestKernel(const std::uint64_t* words, std::int64_t count, unsigned long long* digest) {
  std::uint64_t sum = 0;
  for (std::int64_t i = FirstItem(); i < count; i += Stride()) {
    sum += DigestWord(words[i], static_cast<std::uint64_t>(i));
  }
  for (int lane = 16; lane > 0; lane /= 2) {
    sum += __shfl_down_sync(0xffffffffU, sum, lane);
  }
  if (threadIdx.x % 32 == 0) {
    atomicAdd(digest, static_cast<unsigned long long>(sum));
  }
}

template <typename T>
absl::Status LaunchFillNormal(void* stream, void* data, std::int64_t count, std::uint64_t seed,
                              std::uint64_t first_index, float unit_scale) {
  FillNormalKernel<T><<<BlocksFor(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<T*>(data), count, seed, first_index, unit_scale);
  return linear_logp::CudaStatus(cudaGetLastError(), "fill inputs");
}

}  // namespace

absl::Status FillNormalOnDevice(void* stream, void* data, DType dtype, std::int64_t count, std::uint64_t seed,
                                std::uint64_t first_index, float unit_scale) {
  switch (dtype) {
    case DType::kFloat32:
      return LaunchFillNormal<float>(stream, data, count, seed, first_index, unit_scale);
    case DType::kFloat64:
      return LaunchFillNormal<double>(stream, data, count, seed, first_index, unit_scale);
    case DType::kBFloat16:
      return LaunchFillNormal<__nv_bfloat16>(stream, data, count, seed, first_index, unit_scale);
    case DType::kFloat16:
      return LaunchFillNormal<__half>(stream, data, count, seed, first_index, unit_scale);
    default:
      return absl::InvalidArgumentError("no normal values of an integer type");
  }
}

absl::Status FillTargetsOnDevice(void* stream, std::int64_t* data, std::int64_t count, std::uint64_t seed,
                                 std::int64_t limit) {
  FillTargetsKernel<<<BlocksFor(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      data, count, seed, static_cast<std::uint64_t>(limit));
  return linear_logp::CudaStatus(cudaGetLastError(), "fill targets");
}

absl::Status PoisonOnDevice(void* stream, void* data, std::int64_t bytes) {
  return linear_logp::CudaStatus(
      cudaMemsetAsync(data, 0xff, static_cast<std::size_t>(bytes), static_cast<cudaStream_t>(stream)),
      "poison outputs");
}

absl::StatusOr<std::uint64_t> DigestOnDevice(void* stream, const void* data, std::int64_t bytes) {
  const auto queue = static_cast<cudaStream_t>(stream);
  unsigned long long* digest = nullptr;
  if (absl::Status status =
          linear_logp::CudaStatus(cudaMallocAsync(&digest, sizeof(*digest), queue), "allocate a digest");
      !status.ok()) {
    return status;
  }
  unsigned long long sum = 0;
  std::uint64_t tail = 0;
  const std::int64_t words = bytes / 8;
  const auto rest = static_cast<std::size_t>(bytes % 8);
  cudaError_t error = cudaMemsetAsync(digest, 0, sizeof(*digest), queue);
  if (error == cudaSuccess && words > 0) {
    DigestKernel<<<BlocksFor(words), kThreads, 0, queue>>>(static_cast<const std::uint64_t*>(data), words, digest);
    error = cudaGetLastError();
  }
  if (error == cudaSuccess && rest > 0) {
    error = cudaMemcpyAsync(&tail, static_cast<const char*>(data) + words * 8, rest, cudaMemcpyDeviceToHost, queue);
  }
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(&sum, digest, sizeof(sum), cudaMemcpyDeviceToHost, queue);
  }
  if (error == cudaSuccess) {
    error = cudaStreamSynchronize(queue);
  }
  cudaFreeAsync(digest, queue);
  if (absl::Status status = linear_logp::CudaStatus(error, "digest"); !status.ok()) {
    return status;
  }
  return sum + (rest > 0 ? DigestWord(tail, static_cast<std::uint64_t>(words)) : 0);
}

}  // namespace keval::measure
