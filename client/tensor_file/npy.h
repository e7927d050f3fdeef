// Strict reader and writer of .npy files (formats 1.0, 2.0 and 3.0).
#ifndef KEVAL_CLIENT_TENSOR_FILE_NPY_H_
#define KEVAL_CLIENT_TENSOR_FILE_NPY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "keval/tensor.h"

namespace keval::tensor_file {

struct NpyHeader {
  std::string descr;  // "<f4"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

// The dict literal of a header. INVALID_ARGUMENT naming `source` and the key: anything but exactly descr (text),
// fortran_order (True or False) and shape (tuple of whole numbers), each once. A structured descr is refused by name.
absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view text, absl::string_view source);

// The whole file as a row-major tensor; Fortran order is converted. `stated` is the caller's word for the element type:
// without it "<f4", "<f8", "<f2", "<i4" and "<i8" are read as they are, and "<V2", which numpy saves for bfloat16, is
// refused by name. With kBFloat16 "<V2" holds bfloat16 and "<f4" is rounded to nearest even. Any other must be what
// descr says. INVALID_ARGUMENT naming descr: big-endian, other types. Truncated and trailing bytes are refused.
absl::StatusOr<Tensor> ReadNpy(const std::string& path, std::optional<DType> stated);

// Writes whole or not at all, format 1.0, row-major; bfloat16 as "<V2", like numpy.
absl::Status WriteNpy(const std::string& path, const Tensor& tensor);

}  // namespace keval::tensor_file

#endif  // KEVAL_CLIENT_TENSOR_FILE_NPY_H_
