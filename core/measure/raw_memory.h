// Filling, digesting and poisoning memory of one device, outside every timed region. Torch-free.
#ifndef KEVAL_CORE_MEASURE_RAW_MEMORY_H_
#define KEVAL_CORE_MEASURE_RAW_MEMORY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"

namespace keval::measure {

// Where memory lives and in what order work on it is queued.
struct MemoryPlace {
  bool cuda = false;
  void* stream = nullptr;  // A cudaStream_t; not used on a CPU.
};

// Elements [0, count) of `data` (16-bit or wider floating type) become NearlyNormal values of counters
// first_index, first_index + 1, …, rounded to nearest even. Queued, not awaited, on a GPU.
absl::Status FillNormal(MemoryPlace place, void* data, DType dtype, std::int64_t count, std::uint64_t seed,
                        std::uint64_t first_index, double standard_deviation);

// int64 words uniform in [0, limit); REQUIRES limit >= 1.
absl::Status FillTargets(MemoryPlace place, std::int64_t* data, std::int64_t count, std::uint64_t seed,
                         std::int64_t limit);

// Every byte 0xFF: NaN in every floating type.
absl::Status Poison(MemoryPlace place, void* data, std::int64_t bytes);

// 64 bits that depend on every bit and its place; equal content gives equal digests on host and device. Waits. `data`
// is aligned to 8 bytes.
absl::StatusOr<std::uint64_t> Digest(MemoryPlace place, const void* data, std::int64_t bytes);

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_RAW_MEMORY_H_
