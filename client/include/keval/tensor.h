// Tensors in host memory: a view of somebody's memory with any strides, and one that owns contiguous memory.
#ifndef KEVAL_TENSOR_H_
#define KEVAL_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
// Found beside this file in an installation: base/ headers that a public header needs include none of ours.
#include "base/dtype.h"

namespace keval {

// Describes memory that must stay valid and unchanged for the duration of the call it is passed to.
struct TensorView {
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // In elements, one for each dimension; 0 repeats an element, negative goes back.
                                      // Empty: contiguous, row-major.
  const void* data = nullptr;         // Of the element at index 0 in every dimension.
};

// Owns contiguous row-major little-endian elements. Movable; const methods may run concurrently.
class Tensor {
 public:
  Tensor() = default;
  // Elements are left undefined. INVALID_ARGUMENT (field `name`) for an impossible shape, RESOURCE_EXHAUSTED where the
  // memory is not there.
  static absl::StatusOr<Tensor> Allocate(absl::string_view name, DType dtype, std::vector<std::int64_t> shape);
  // A contiguous copy of `view`. Errors as Allocate, and INVALID_ARGUMENT where strides and shape differ in length.
  static absl::StatusOr<Tensor> Copy(absl::string_view name, const TensorView& view);

  DType dtype() const { return dtype_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::int64_t num_elements() const { return static_cast<std::int64_t>(size_) / DTypeSize(dtype_); }
  absl::Span<const std::byte> bytes() const { return {data_.get(), size_}; }
  absl::Span<std::byte> mutable_bytes() { return {data_.get(), size_}; }
  TensorView view() const { return {dtype_, shape_, {}, data_.get()}; }

  // Element `index` in row-major order as a double (exact for every type but the largest int64).
  double At(std::int64_t index) const;

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };

  DType dtype_ = DType::kFloat32;
  std::vector<std::int64_t> shape_ = {0};
  std::size_t size_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

// Nearest bfloat16, ties to even, as its 16 bits; a NaN stays a NaN.
std::uint16_t BFloat16FromFloat(float value);
float FloatFromBFloat16(std::uint16_t bits);
float FloatFromFloat16(std::uint16_t bits);

}  // namespace keval

#endif  // KEVAL_TENSOR_H_
