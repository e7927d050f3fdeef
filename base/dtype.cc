#include "base/dtype.h"

#include <array>
#include <utility>

namespace keval {
namespace {
constexpr std::array<std::pair<DType, absl::string_view>, 6> kNames = {{{DType::kFloat32, "float32"},
                                                                        {DType::kFloat64, "float64"},
                                                                        {DType::kBFloat16, "bfloat16"},
                                                                        {DType::kFloat16, "float16"},
                                                                        {DType::kInt32, "int32"},
                                                                        {DType::kInt64, "int64"}}};
}  // namespace

std::int64_t DTypeSize(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
  }
  return 0;  // Unreachable: the switch names every enumerator.
}

absl::string_view DTypeName(DType dtype) {
  for (const auto& [value, name] : kNames) {
    if (value == dtype) return name;
  }
  return "";
}

std::optional<DType> ParseDType(absl::string_view name) {
  for (const auto& [value, known] : kNames) {
    if (known == name) return value;
  }
  return std::nullopt;
}

bool IsFloating(DType dtype) { return dtype != DType::kInt32 && dtype != DType::kInt64; }

}  // namespace keval
