#include "keval/tensor.h"

#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/large_memory.h"
#include "base/shape.h"

namespace keval {
namespace {

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

std::vector<std::int64_t> ContiguousStrides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// Copies the sub-tensor of dimensions `dim` and up; returns where the next one goes.
std::byte* CopyStrided(const TensorView& view, std::size_t dim, const std::byte* from, std::byte* to) {
  const auto size = static_cast<std::size_t>(DTypeSize(view.dtype));
  if (dim == view.shape.size()) {
    std::memcpy(to, from, size);
    return to + size;
  }
  if (dim + 1 == view.shape.size() && view.strides[dim] == 1) {
    const std::size_t row = static_cast<std::size_t>(view.shape[dim]) * size;
    std::memcpy(to, from, row);
    return to + row;
  }
  for (std::int64_t i = 0; i < view.shape[dim]; ++i) {
    to = CopyStrided(view, dim + 1, from + i * view.strides[dim] * static_cast<std::int64_t>(size), to);
  }
  return to;
}

}  // namespace

void Tensor::Free::operator()(std::byte* data) const { FreeMemory()(data); }

absl::StatusOr<Tensor> Tensor::Allocate(absl::string_view name, DType dtype, std::vector<std::int64_t> shape) {
  const auto bytes = NumBytes(name, {dtype, shape});
  if (!bytes.ok()) return bytes.status();
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  tensor.size_ = static_cast<std::size_t>(*bytes);
  tensor.data_.reset(AllocateLarge(tensor.size_).release());
  if (tensor.data_ == nullptr) {
    return WithField(absl::ResourceExhaustedError(absl::StrCat(name, ": no memory for ", *bytes, " bytes")),
                     {std::string(name), absl::StrCat(*bytes, " bytes"), ""});
  }
  return tensor;
}

absl::StatusOr<Tensor> Tensor::Copy(absl::string_view name, const TensorView& view) {
  if (!view.strides.empty() && view.strides.size() != view.shape.size()) {
    return InvalidField(name, absl::StrCat(view.strides.size(), " strides"),
                        absl::StrCat("as many as dimensions (", view.shape.size(), ")"));
  }
  auto tensor = Allocate(name, view.dtype, view.shape);
  if (!tensor.ok() || tensor->size_ == 0) return tensor;
  if (view.data == nullptr) return InvalidField(name, "a null pointer", "memory that holds the elements");
  TensorView strided = view;
  if (strided.strides.empty()) strided.strides = ContiguousStrides(strided.shape);
  CopyStrided(strided, 0, static_cast<const std::byte*>(view.data), tensor->data_.get());
  return tensor;
}

double Tensor::At(std::int64_t index) const {
  const std::byte* const element = data_.get() + index * DTypeSize(dtype_);
  switch (dtype_) {
    case DType::kFloat32:
      return Load<float>(element);
    case DType::kFloat64:
      return Load<double>(element);
    case DType::kBFloat16:
      return FloatFromBFloat16(Load<std::uint16_t>(element));
    case DType::kFloat16:
      return FloatFromFloat16(Load<std::uint16_t>(element));
    case DType::kInt32:
      return Load<std::int32_t>(element);
    case DType::kInt64:
      return static_cast<double>(Load<std::int64_t>(element));
  }
  return 0;  // Unreachable: the switch names every enumerator.
}

std::uint16_t BFloat16FromFloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Rounding could carry a NaN's low bits away and leave an infinity: keep the sign and the high bits, and set the
  // quiet bit.
  if (value != value) return static_cast<std::uint16_t>((bits >> 16) | 0x0040U);
  const std::uint32_t tie_to_even = 0x7FFFU + ((bits >> 16) & 1U);
  return static_cast<std::uint16_t>((bits + tie_to_even) >> 16);
}

float FloatFromBFloat16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

float FloatFromFloat16(std::uint16_t bits) {
  const float sign = (bits & 0x8000U) != 0 ? -1.0F : 1.0F;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const auto fraction = static_cast<float>(bits & 0x3FFU);
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  }
  if (exponent == 0) return sign * fraction * 0x1p-24F;
  return sign * (fraction + 1024.0F) * std::bit_cast<float>((exponent + 102U) << 23);
}

}  // namespace keval
