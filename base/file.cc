#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/sha256.h"
#include "base/text.h"

namespace keval {
namespace {

constexpr std::size_t kReadPiece = std::size_t{1} << 16;

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

absl::StatusOr<std::string> ReadAll(const Descriptor& file, const std::string& path, std::int64_t max_bytes) {
  std::string contents;
  while (true) {
    const std::size_t filled = contents.size();
    if (static_cast<std::int64_t>(filled) > max_bytes) {
      return InvalidField(path, "the file", absl::StrCat("of at most ", max_bytes, " bytes"));
    }
    contents.resize(filled + kReadPiece);
    const ssize_t count = read(file.get(), contents.data() + filled, kReadPiece);
    contents.resize(filled + (count > 0 ? static_cast<std::size_t>(count) : 0));
    if (count == 0) return contents;
    if (count < 0 && errno != EINTR) return FileError(path, "can't be read", errno);
  }
}

// Where a rename must go so that a symbolic link at `path` stays one.
std::string ResolveLink(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> resolved(realpath(path.c_str(), nullptr), &std::free);
  return resolved == nullptr ? path : std::string(resolved.get());
}

}  // namespace

absl::Status FileError(const std::string& path, absl::string_view what, int error_number) {
  const std::string message = absl::StrCat(PrintableText(path), ": ", what, ": ",
                                           std::error_code(error_number, std::generic_category()).message());
  const auto code = error_number == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kInvalidArgument;
  return WithField(absl::Status(code, message), {PrintableText(path), "", ""});
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, std::int64_t max_bytes) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return FileError(path, "can't be opened", errno);
  return ReadAll(file, path, max_bytes);
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& path, std::int64_t max_bytes) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return FileError(path, "can't be opened", errno);
  // Of the file that was opened: its name may mean another one by now.
  struct stat info = {};
  if (fstat(file.get(), &info) != 0) return FileError(path, "can't be read", errno);
  if ((info.st_mode & (S_IWGRP | S_IRWXO)) != 0) {
    return InvalidField(path,
                        absl::StrCat("mode 0", absl::Hex(info.st_mode >> 6 & 7), absl::Hex(info.st_mode >> 3 & 7),
                                     absl::Hex(info.st_mode & 7)),
                        "0600, or 0640 for a group that may read it: a secret is in it");
  }
  return ReadAll(file, path, max_bytes);
}

std::string ProgramBesideThisOne(const std::string& name) {
  std::error_code ignored;  // Then an empty path, whose file name becomes `name`.
  return std::filesystem::read_symlink("/proc/self/exe", ignored).replace_filename(name).string();
}

absl::StatusOr<AtomicFile> AtomicFile::Create(const std::string& path) {
  const std::string target = ResolveLink(path);
  struct stat existing = {};
  const bool exists = stat(target.c_str(), &existing) == 0;
  if (exists && !S_ISREG(existing.st_mode)) return InvalidField(path, "what is there", "a regular file");
  const std::string temporary = absl::StrCat(target, ".", RandomHex128(), ".tmp");
  const int descriptor = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return FileError(path, "can't be written", errno);
  AtomicFile file(target, temporary, descriptor);
  if (exists && fchmod(descriptor, existing.st_mode & 07777) != 0) return FileError(path, "can't be written", errno);
  return file;
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status AtomicFile::Append(const void* data, std::size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = write(descriptor_, next, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError(path_, "can't be written", errno);
    next += count;
    size -= static_cast<std::size_t>(count);
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  if (fsync(descriptor_) != 0) return FileError(path_, "can't be written", errno);
  const int closed = close(std::exchange(descriptor_, -1));
  if (closed != 0) return FileError(path_, "can't be written", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return FileError(path_, "can't be put in place", errno);
  temporary_.clear();
  return absl::OkStatus();
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents) {
  auto file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  if (auto status = file->Append(contents.data(), contents.size()); !status.ok()) return status;
  return file->Commit();
}

}  // namespace keval
