// Tensor files by their ending: .npy holds one tensor, anything else is read and written as .safetensors.
#ifndef KEVAL_CLIENT_CLI_TENSOR_FILES_H_
#define KEVAL_CLIENT_CLI_TENSOR_FILES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "client/tensor_file/safetensors.h"

namespace keval::cli {

// The tensors of "FILE" or "NAME=FILE" arguments. A .npy's tensor has NAME, or the part of its file name before .npy
// and behind the last dot there ("a.hidden.npy" holds hidden). `only`: just the one of that name; empty: all. `stated`
// is for .npy files (npy.h). INVALID_ARGUMENT naming a name that is given twice or not there.
absl::StatusOr<std::vector<tensor_file::NamedTensor>> ReadTensors(const std::vector<std::string>& arguments,
                                                                  const std::string& only, std::optional<DType> stated);

// The tensor `only` of a file, or its one tensor where `only` is empty.
absl::StatusOr<tensor_file::NamedTensor> ReadOneTensor(const std::string& argument, const std::string& only,
                                                       std::optional<DType> stated);

// INVALID_ARGUMENT where `path` is a .npy and there isn't exactly one tensor.
absl::Status WriteTensors(const std::string& path, const std::vector<tensor_file::NamedTensor>& tensors);

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_TENSOR_FILES_H_
