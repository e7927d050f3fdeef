#include "client/tensor_file/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/field_error.h"
#include "base/file.h"

namespace keval::tensor_file {

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  // Non-blocking: opening a pipe that nobody writes to must not hang before it can be refused.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return FileError(path, "can't be opened", errno);
  InputFile file(path, descriptor, 0);
  struct stat status = {};
  if (fstat(descriptor, &status) != 0) return FileError(path, "can't be read", errno);
  if (!S_ISREG(status.st_mode)) return InvalidField(path, "what is there", "a regular file");
  file.size_ = status.st_size;
  return file;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status InputFile::ReadAt(std::int64_t offset, void* to, std::size_t size) const {
  char* next = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t count = pread(descriptor_, next, size, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError(path_, "can't be read", errno);
    if (count == 0) return InvalidField(path_, "the file", "as long as its header says: it is truncated");
    next += count;
    offset += count;
    size -= static_cast<std::size_t>(count);
  }
  return absl::OkStatus();
}

}  // namespace keval::tensor_file
