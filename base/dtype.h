// Element types of tensors, by the names used in protos, specs, files and reports.
#ifndef KEVAL_BASE_DTYPE_H_
#define KEVAL_BASE_DTYPE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace keval {

enum class DType : std::uint8_t { kFloat32, kFloat64, kBFloat16, kFloat16, kInt32, kInt64 };

// Bytes of one element.
std::int64_t DTypeSize(DType dtype);

// "float32", "float64", "bfloat16", "float16", "int32" or "int64".
absl::string_view DTypeName(DType dtype);

// The inverse of DTypeName; nullopt for any other text.
std::optional<DType> ParseDType(absl::string_view name);

bool IsFloating(DType dtype);

}  // namespace keval

#endif  // KEVAL_BASE_DTYPE_H_
