#include "base/shape.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/field_error.h"

namespace keval {
namespace {
constexpr std::size_t kMaxDimensions = 16;
}  // namespace

std::optional<std::int64_t> CheckedMultiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

std::string ShapeText(absl::Span<const std::int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<std::int64_t> NumElements(absl::string_view field, absl::Span<const std::int64_t> shape) {
  if (shape.size() > kMaxDimensions) {
    return InvalidField(field, absl::StrCat(shape.size(), " dimensions"), "at most 16 dimensions");
  }
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) return InvalidField(field, ShapeText(shape), "a shape without negative dimensions");
    if (dimension == 0) {
      empty = true;
      continue;
    }
    const auto next = CheckedMultiply(product, dimension);
    if (!next) return InvalidField(field, ShapeText(shape), "a shape with fewer than 2^63 elements");
    product = *next;
  }
  return empty ? 0 : product;
}

absl::StatusOr<std::int64_t> NumBytes(absl::string_view field, const TensorSpec& spec) {
  const auto elements = NumElements(field, spec.shape);
  if (!elements.ok()) return elements.status();
  const auto bytes = CheckedMultiply(*elements, DTypeSize(spec.dtype));
  if (!bytes) return InvalidField(field, ShapeText(spec.shape), "a shape of fewer than 2^63 bytes");
  return *bytes;
}

}  // namespace keval
