// Files read with a limit, files written whole or not at all, and where the running program lies.
#ifndef KEVAL_BASE_FILE_H_
#define KEVAL_BASE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace keval {

// Error of a file operation: NOT_FOUND where the file is missing, otherwise INVALID_ARGUMENT; the path is its field.
// Never PERMISSION_DENIED or UNAVAILABLE, which speak of a server.
absl::Status FileError(const std::string& path, absl::string_view what, int error_number);

// The whole file (a pipe too). INVALID_ARGUMENT naming path and limit where it has more than `max_bytes`.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, std::int64_t max_bytes);

// The same for a file that holds a secret: INVALID_ARGUMENT also where its mode lets its group write it, or anybody
// else do anything with it.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path, std::int64_t max_bytes);

// A file that appears under its name only when Commit succeeds; until then, and on any failure, what was there stays
// untouched. The bytes go to a temporary file in the same folder, removed when the object goes. Movable, not
// thread-safe.
class AtomicFile {
 public:
  // Errors: the folder is missing or read-only; `path` exists and is no regular file (a device must not be replaced).
  static absl::StatusOr<AtomicFile> Create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept
      : path_(std::move(other.path_)),
        temporary_(std::exchange(other.temporary_, {})),
        descriptor_(std::exchange(other.descriptor_, -1)) {}
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  absl::Status Append(const void* data, std::size_t size);
  // Flushes to disk, then renames. Nothing may be appended afterwards.
  absl::Status Commit();

 private:
  AtomicFile(std::string path, std::string temporary, int descriptor)
      : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

  std::string path_;
  std::string temporary_;  // Empty once renamed.
  int descriptor_ = -1;
};

// The path of the program `name` in the running one's folder; the name alone where that can't be told. Never $PATH.
std::string ProgramBesideThisOne(const std::string& name);

// Create, Append, Commit.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents);

}  // namespace keval

#endif  // KEVAL_BASE_FILE_H_
