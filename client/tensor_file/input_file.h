// A regular file that is read front to back, and whose size is known before anything is believed.
#ifndef KEVAL_CLIENT_TENSOR_FILE_INPUT_FILE_H_
#define KEVAL_CLIENT_TENSOR_FILE_INPUT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace keval::tensor_file {

// Owns the descriptor. Movable, not thread-safe.
class InputFile {
 public:
  // INVALID_ARGUMENT where `path` is no regular file; otherwise as FileError.
  static absl::StatusOr<InputFile> Open(const std::string& path);
  InputFile(InputFile&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  std::int64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  // Exactly `size` bytes at `offset`; INVALID_ARGUMENT where the file ends before (it shrank while being read).
  absl::Status ReadAt(std::int64_t offset, void* to, std::size_t size) const;

 private:
  InputFile(std::string path, int descriptor, std::int64_t size)
      : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

  std::string path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
};

}  // namespace keval::tensor_file

#endif  // KEVAL_CLIENT_TENSOR_FILE_INPUT_FILE_H_
