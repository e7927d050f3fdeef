#include "core/measure/clock_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/text.h"

namespace keval::measure {
namespace {

// The record's name is the prefix and the device's UUID. It holds a line for a person who finds it, and its owner's.
constexpr absl::string_view kRecordPrefix = "clock_lock.";
constexpr absl::string_view kOwnerPrefix = "owner ";

// Nobody else touches the folder's records, or the clocks that they tell of, while it lives.
class FolderLock {
 public:
  // Waits for it. UNAVAILABLE where there is no such folder.
  static absl::StatusOr<FolderLock> Take(const std::string& folder) {
    const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
      return absl::UnavailableError(absl::StrCat("the folder of clock records: ", std::strerror(errno)));
    }
    while (flock(fd, LOCK_EX) != 0) {
      if (errno != EINTR) {
        const int error = errno;
        close(fd);
        return absl::UnavailableError(absl::StrCat("a lock on the folder of clock records: ", std::strerror(error)));
      }
    }
    return FolderLock(fd);
  }
  FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock() {
    if (fd_ >= 0) {
      flock(fd_, LOCK_UN);  // Closing wouldn't, where a child that is just being started has the descriptor too.
      close(fd_);
    }
  }

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  int fd_;
};

bool IsUuid(absl::string_view text) {
  return !text.empty() && text.find_first_not_of("-0123456789ABCDEFGIMPUabcdef") == absl::string_view::npos;
}

// OK where no process but this one uses the device.
absl::Status CheckUnshared(const Nvml& nvml) {
  if (nvml.IsSplit()) {
    return absl::FailedPreconditionError("the device is split into MIG instances");
  }
  const DeviceReading reading = nvml.Read();
  if (!reading.processes_known) {
    return absl::FailedPreconditionError("the driver does not tell which processes use the device");
  }
  const auto own = std::count(reading.process_ids.begin(), reading.process_ids.end(), static_cast<unsigned>(getpid()));
  const std::size_t others = reading.process_ids.size() - static_cast<std::size_t>(own);
  if (others > 0) {
    return absl::FailedPreconditionError(absl::StrCat("the device is shared: ", others, " other process(es) use it"));
  }
  return absl::OkStatus();
}

void Forget(const std::string& record) {
  std::error_code ignored;  // A record too many costs one more restoring.
  std::filesystem::remove(record, ignored);
}

// Whose the record is; empty where it doesn't tell.
std::string OwnerOf(const std::string& record) {
  constexpr std::int64_t kMaxBytes = 4096;
  const absl::StatusOr<std::string> text = ReadWholeFile(record, kMaxBytes);
  if (!text.ok()) {
    return "";
  }
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (absl::ConsumePrefix(&line, kOwnerPrefix)) {
      return std::string(line);
    }
  }
  return "";
}

// REQUIRES the folder's lock.
absl::Status RestoreOne(const std::string& record, absl::string_view uuid) {
  const absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Open(uuid);
  if (!nvml.ok()) {
    return nvml.status();
  }
  if (absl::Status status = (*nvml)->UnlockSmClock(); !status.ok()) {
    return status;
  }
  Forget(record);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClockLock>> ClockLock::Take(absl::string_view uuid, unsigned mhz,
                                                           const std::string& record_folder, absl::string_view owner) {
  if (!IsUuid(uuid)) {
    return absl::FailedPreconditionError("the device has no UUID");
  }
  absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Open(uuid);
  if (!nvml.ok()) {
    return nvml.status();
  }
  if (absl::Status status = CheckUnshared(**nvml); !status.ok()) {
    return status;
  }
  const absl::StatusOr<FolderLock> alone = FolderLock::Take(record_folder);
  if (!alone.ok()) {
    return alone.status();
  }
  std::string record = absl::StrCat(record_folder, "/", kRecordPrefix, uuid);
  const std::string text = absl::StrCat("SM clock locked to ", mhz, " MHz by keval\n", kOwnerPrefix, owner, "\n");
  if (absl::Status status = WriteFileAtomically(record, text); !status.ok()) {
    return status;
  }
  if (absl::Status status = (*nvml)->LockSmClock(mhz); !status.ok()) {
    Forget(record);
    return status;
  }
  return std::unique_ptr<ClockLock>(new ClockLock(*std::move(nvml), record_folder, std::move(record)));
}

ClockLock::~ClockLock() {
  const absl::StatusOr<FolderLock> alone =
      FolderLock::Take(folder_);  // Its folder gone, the clock is ours all the same.
  if (nvml_->UnlockSmClock().ok()) {
    Forget(record_);
  }
}

absl::Status RestoreClock(const std::string& record_folder, absl::string_view uuid, absl::string_view owner) {
  if (!IsUuid(uuid) || owner.empty()) {
    return absl::OkStatus();
  }
  const absl::StatusOr<FolderLock> alone = FolderLock::Take(record_folder);
  if (!alone.ok()) {
    return alone.status();
  }
  const std::string record = absl::StrCat(record_folder, "/", kRecordPrefix, uuid);
  return OwnerOf(record) == owner ? RestoreOne(record, uuid) : absl::OkStatus();
}

absl::Status RestoreClocks(const std::string& record_folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(record_folder, error)) {
    return absl::OkStatus();  // No folder, no record.
  }
  const absl::StatusOr<FolderLock> alone = FolderLock::Take(record_folder);
  if (!alone.ok()) {
    return alone.status();
  }
  std::filesystem::directory_iterator entries(record_folder, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("the folder of clock records: ", error.message()));
  }
  std::vector<std::string> records;
  for (const std::filesystem::directory_entry& entry : entries) {
    records.push_back(entry.path().string());
  }
  absl::Status first;
  for (const std::string& record : records) {
    const std::string name = std::filesystem::path(record).filename().string();
    absl::string_view uuid = name;
    if (!absl::ConsumePrefix(&uuid, kRecordPrefix) || !IsUuid(uuid)) {
      continue;
    }
    if (absl::Status status = RestoreOne(record, uuid); !status.ok()) {
      first.Update(absl::Status(status.code(), absl::StrCat("the SM clock of ", uuid,
                                                            ", which a process that was ended left "
                                                            "locked, can't be given back: ",
                                                            status.message())));
    }
  }
  return first;
}

}  // namespace keval::measure
