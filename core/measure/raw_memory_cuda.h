// The CUDA halves of raw_memory.h; compiled by nvcc, no torch. Each queues on `stream` (a cudaStream_t).
#ifndef KEVAL_CORE_MEASURE_RAW_MEMORY_CUDA_H_
#define KEVAL_CORE_MEASURE_RAW_MEMORY_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"

namespace keval::measure {

absl::Status FillNormalOnDevice(void* stream, void* data, DType dtype, std::int64_t count, std::uint64_t seed,
                                std::uint64_t first_index, float unit_scale);
absl::Status FillTargetsOnDevice(void* stream, std::int64_t* data, std::int64_t count, std::uint64_t seed,
                                 std::int64_t limit);
absl::Status PoisonOnDevice(void* stream, void* data, std::int64_t bytes);
absl::StatusOr<std::uint64_t> DigestOnDevice(void* stream, const void* data, std::int64_t bytes);

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_RAW_MEMORY_CUDA_H_
