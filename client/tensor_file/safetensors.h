// Strict reader and writer of .safetensors files: 8 bytes of header length (little-endian), a JSON header, the bytes.
#ifndef KEVAL_CLIENT_TENSOR_FILE_SAFETENSORS_H_
#define KEVAL_CLIENT_TENSOR_FILE_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "keval/tensor.h"

namespace keval::tensor_file {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// Where a tensor's bytes lie, counted from the end of the header.
struct Entry {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Entries of a header's JSON in the order of their bytes. INVALID_ARGUMENT naming the tensor and what is wrong: an
// unknown dtype, an impossible shape, a size that isn't shape x dtype, bytes that overlap, leave gaps, or don't cover
// exactly `payload_bytes`, a name given twice, an unknown key. "__metadata__" (text to text) is checked and left out.
absl::StatusOr<std::vector<Entry>> ParseSafetensorsHeader(absl::string_view json, std::int64_t payload_bytes,
                                                          absl::string_view source);

// The whole file; nothing is allocated for a tensor before the header has been checked against the file's size. Errors
// as ParseSafetensorsHeader, and those of opening and reading.
absl::StatusOr<std::vector<NamedTensor>> ReadSafetensors(const std::string& path);

// The header that WriteSafetensors writes, without the length before it.
std::string FormatSafetensorsHeader(const std::vector<const NamedTensor*>& ordered);

// Writes whole or not at all (AtomicFile). The bytes depend on the tensors alone, not on their order or the locale.
// INVALID_ARGUMENT for a name that is given twice or isn't UTF-8.
absl::Status WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors);

}  // namespace keval::tensor_file

#endif  // KEVAL_CLIENT_TENSOR_FILE_SAFETENSORS_H_
