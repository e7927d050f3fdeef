// A whole .safetensors file. What is read is written as a header that reads back as the same tensors.
#include <vector>

#include "client/tensor_file/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

using keval::fuzz::Require;
using keval::tensor_file::NamedTensor;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static keval::fuzz::MemoryFile file;
  file.Set(keval::fuzz::AsText(data, size));
  const auto read = keval::tensor_file::ReadSafetensors(file.path());
  if (!read.ok()) {
    keval::fuzz::RequireRefusal(read.status());
    return 0;
  }
  std::vector<const NamedTensor*> tensors;
  std::int64_t bytes = 0;
  for (const NamedTensor& named : *read) {
    tensors.push_back(&named);
    bytes += static_cast<std::int64_t>(named.tensor.bytes().size());
  }
  Require(bytes <= static_cast<std::int64_t>(size), "the tensors' bytes are the file's");
  const auto again =
      keval::tensor_file::ParseSafetensorsHeader(keval::tensor_file::FormatSafetensorsHeader(tensors), bytes, "again");
  Require(again.ok(), again.status().ToString());
  Require(again->size() == tensors.size(), "every tensor is written");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& entry = (*again)[i];
    const auto& tensor = tensors[i]->tensor;
    Require(entry.name == tensors[i]->name && entry.dtype == tensor.dtype() && entry.shape == tensor.shape(),
            "a tensor reads back as it was");
  }
  return 0;
}
