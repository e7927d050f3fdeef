#include "tests/fuzz/fuzz_target.h"

#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace keval::fuzz {

void Require(bool held, absl::string_view what) {
  if (held) return;
  const std::string line = absl::StrCat("does not hold: ", what, "\n");
  // Nothing is left to do where even that can't be written.
  static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
  std::abort();
}

MemoryFile::MemoryFile() : descriptor_(memfd_create("keval-fuzz", MFD_CLOEXEC)) {
  Require(descriptor_ >= 0, "a file in memory can be made");
  path_ = absl::StrCat("/proc/self/fd/", descriptor_);
}

MemoryFile::~MemoryFile() { close(descriptor_); }

// NOLINTNEXTLINE(readability-make-member-function-const): what changes is the file.
void MemoryFile::Set(absl::string_view bytes) {
  Require(ftruncate(descriptor_, 0) == 0, "a file in memory can be emptied");
  std::size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count =
        pwrite(descriptor_, bytes.data() + written, bytes.size() - written, static_cast<off_t>(written));
    Require(count > 0, "a file in memory can be written");
    written += static_cast<std::size_t>(count);
  }
}

}  // namespace keval::fuzz
