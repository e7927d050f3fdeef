// What the fuzz targets share. Each target is a file with one LLVMFuzzerTestOneInput, as libFuzzer wants it, which
// driver.cc calls with inputs that nobody chose. A target fails by a sanitizer's report or by Require.
#ifndef KEVAL_TESTS_FUZZ_FUZZ_TARGET_H_
#define KEVAL_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace keval::fuzz {

inline absl::string_view AsText(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Ends the program where `held` is false, saying what should have held.
void Require(bool held, absl::string_view what);

// A reader's refusal is the caller's fault and says something.
inline void RequireRefusal(const absl::Status& status) {
  Require(status.code() == absl::StatusCode::kInvalidArgument && !status.message().empty(), status.ToString());
}

// A file in memory that a reader opens by its path. Not thread-safe.
class MemoryFile {
 public:
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // The file's whole content from now on.
  void Set(absl::string_view bytes);
  const std::string& path() const { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

}  // namespace keval::fuzz

#endif  // KEVAL_TESTS_FUZZ_FUZZ_TARGET_H_
