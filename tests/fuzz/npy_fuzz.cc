// A whole .npy file, read with and without a stated element type.
#include <optional>

#include "client/tensor_file/npy.h"
#include "tests/fuzz/fuzz_target.h"

using keval::DType;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static keval::fuzz::MemoryFile file;
  file.Set(keval::fuzz::AsText(data, size));
  for (const std::optional<DType> stated : {std::optional<DType>(), std::optional(DType::kBFloat16)}) {
    const auto read = keval::tensor_file::ReadNpy(file.path(), stated);
    if (!read.ok()) {
      keval::fuzz::RequireRefusal(read.status());
    } else {
      keval::fuzz::Require(read->bytes().size() <= size, "the tensor's bytes are the file's");
      keval::fuzz::Require(!stated.has_value() || read->dtype() == *stated, "a stated type is what is read");
    }
  }
  return 0;
}
