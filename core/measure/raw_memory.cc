#include "core/measure/raw_memory.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/measure/counter_generator.h"
#ifdef KEVAL_CUDA
#include "core/measure/raw_memory_cuda.h"
#endif

namespace keval::measure {
namespace {

template <typename T>
void FillNormalOnHost(void* data, std::int64_t count, std::uint64_t seed, std::uint64_t first_index, float scale) {
  T* const values = static_cast<T*>(data);
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(NearlyNormal(CounterBits(seed, first_index + static_cast<std::uint64_t>(i)), scale));
  }
}

std::uint64_t DigestOnHost(const void* data, std::int64_t bytes) {
  const char* const begin = static_cast<const char*>(data);
  const std::int64_t words = bytes / 8;
  std::uint64_t digest = 0;
  for (std::int64_t i = 0; i < words; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, begin + i * 8, 8);
    digest += DigestWord(word, static_cast<std::uint64_t>(i));
  }
  if (const std::int64_t rest = bytes % 8; rest > 0) {
    std::uint64_t word = 0;
    std::memcpy(&word, begin + words * 8, static_cast<std::size_t>(rest));
    digest += DigestWord(word, static_cast<std::uint64_t>(words));
  }
  return digest;
}

#ifndef KEVAL_CUDA
absl::Status NoCuda() { return absl::FailedPreconditionError("this build has no CUDA"); }
#endif

}  // namespace

absl::Status FillNormal(MemoryPlace place, void* data, DType dtype, std::int64_t count, std::uint64_t seed,
                        std::uint64_t first_index, double standard_deviation) {
  const float scale = UnitScale(standard_deviation);
  if (place.cuda) {
#ifdef KEVAL_CUDA
    return FillNormalOnDevice(place.stream, data, dtype, count, seed, first_index, scale);
#else
    return NoCuda();
#endif
  }
  switch (dtype) {
    case DType::kFloat32:
      FillNormalOnHost<float>(data, count, seed, first_index, scale);
      return absl::OkStatus();
    case DType::kFloat64:
      FillNormalOnHost<double>(data, count, seed, first_index, scale);
      return absl::OkStatus();
    case DType::kBFloat16:
      FillNormalOnHost<c10::BFloat16>(data, count, seed, first_index, scale);
      return absl::OkStatus();
    case DType::kFloat16:
      FillNormalOnHost<c10::Half>(data, count, seed, first_index, scale);
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(absl::StrCat("no normal values of type ", DTypeName(dtype)));
  }
}

absl::Status FillTargets(MemoryPlace place, std::int64_t* data, std::int64_t count, std::uint64_t seed,
                         std::int64_t limit) {
  if (place.cuda) {
#ifdef KEVAL_CUDA
    return FillTargetsOnDevice(place.stream, data, count, seed, limit);
#else
    return NoCuda();
#endif
  }
  for (std::int64_t i = 0; i < count; ++i) {
    data[i] =
        static_cast<std::int64_t>(CounterBits(seed, static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(limit));
  }
  return absl::OkStatus();
}

absl::Status Poison(MemoryPlace place, void* data, std::int64_t bytes) {
  if (bytes == 0) {
    return absl::OkStatus();
  }
  if (place.cuda) {
#ifdef KEVAL_CUDA
    return PoisonOnDevice(place.stream, data, bytes);
#else
    return NoCuda();
#endif
  }
  std::memset(data, 0xff, static_cast<std::size_t>(bytes));
  return absl::OkStatus();
}

absl::StatusOr<std::uint64_t> Digest(MemoryPlace place, const void* data, std::int64_t bytes) {
  if (place.cuda) {
#ifdef KEVAL_CUDA
    return DigestOnDevice(place.stream, data, bytes);
#else
    return NoCuda();
#endif
  }
  return DigestOnHost(data, bytes);
}

}  // namespace keval::measure
