#include "core/measure/clock_lock.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/text.h"

namespace keval::measure {
namespace {

// The record's name is the prefix and the device's UUID; what it holds is for a person who finds it.
constexpr absl::string_view kRecordPrefix = "clock_lock.";

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
                                                           const std::string& record_folder) {
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
  std::string record = absl::StrCat(record_folder, "/", kRecordPrefix, uuid);
  if (absl::Status status = WriteFileAtomically(record, absl::StrCat("SM clock locked to ", mhz, " MHz by keval\n"));
      !status.ok()) {
    return status;
  }
  if (absl::Status status = (*nvml)->LockSmClock(mhz); !status.ok()) {
    Forget(record);
    return status;
  }
  return std::unique_ptr<ClockLock>(new ClockLock(*std::move(nvml), std::move(record)));
}

ClockLock::~ClockLock() {
  if (nvml_->UnlockSmClock().ok()) {
    Forget(record_);
  }
}

absl::Status RestoreClock(const std::string& record_folder, absl::string_view uuid) {
  const std::string record = absl::StrCat(record_folder, "/", kRecordPrefix, uuid);
  std::error_code error;
  return IsUuid(uuid) && std::filesystem::exists(record, error) ? RestoreOne(record, uuid) : absl::OkStatus();
}

absl::Status RestoreClocks(const std::string& record_folder) {
  std::error_code error;
  std::filesystem::directory_iterator entries(record_folder, error);
  if (error) {
    return absl::OkStatus();  // No folder, no record.
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
