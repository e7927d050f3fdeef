// Shape arithmetic that cannot overflow.
#ifndef KEVAL_BASE_SHAPE_H_
#define KEVAL_BASE_SHAPE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/dtype.h"

namespace keval {

// A tensor's element type and shape; row-major and contiguous wherever bytes travel.
struct TensorSpec {
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// Elements of `shape`. INVALID_ARGUMENT naming `field` for a negative dimension, more than 16 dimensions, or a product
// (zero dimensions left out, so that [2^40, 0, 2^40] is refused too) that overflows int64.
absl::StatusOr<std::int64_t> NumElements(absl::string_view field, absl::Span<const std::int64_t> shape);

// Bytes of a contiguous tensor; the errors of NumElements, also where the byte count overflows.
absl::StatusOr<std::int64_t> NumBytes(absl::string_view field, const TensorSpec& spec);

// a * b, or nullopt where it overflows; both non-negative.
std::optional<std::int64_t> CheckedMultiply(std::int64_t a, std::int64_t b);

// "[4, 8]".
std::string ShapeText(absl::Span<const std::int64_t> shape);

}  // namespace keval

#endif  // KEVAL_BASE_SHAPE_H_
