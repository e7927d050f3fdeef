// A GPU's SM clock held at one frequency while a job is measured: only where the operator asked for it, only on a
// device that nobody else uses, and never left behind.
#ifndef KEVAL_CORE_MEASURE_CLOCK_LOCK_H_
#define KEVAL_CORE_MEASURE_CLOCK_LOCK_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/measure/nvml.h"

namespace keval::measure {

// Held while the object lives; gone with it. A file in `record_folder`, on disk before the clock is touched, outlives a
// process that is killed: RestoreClock and RestoreClocks undo what it tells of. Whoever touches clock and record holds
// a lock (flock) on the folder meanwhile, so that two processes never mistake each other's. Thread-compatible; one a
// device.
class ClockLock {
 public:
  // `owner`, a word that nobody else uses (RandomHex128), goes into the record. The device is left as it is, with the
  // reason, where another process has a context there or that can't be known (FAILED_PRECONDITION), it is split
  // (FAILED_PRECONDITION), the driver does not let us (UNAVAILABLE), or NVML or the folder can't be used (UNAVAILABLE,
  // or the error of the file).
  static absl::StatusOr<std::unique_ptr<ClockLock>> Take(absl::string_view uuid, unsigned mhz,
                                                         const std::string& record_folder, absl::string_view owner);
  ~ClockLock();
  ClockLock(const ClockLock&) = delete;
  ClockLock& operator=(const ClockLock&) = delete;

 private:
  ClockLock(std::unique_ptr<Nvml> nvml, std::string folder, std::string record)
      : nvml_(std::move(nvml)), folder_(std::move(folder)), record_(std::move(record)) {}

  const std::unique_ptr<Nvml> nvml_;
  const std::string folder_;
  const std::string record_;
};

// Gives every device of which `record_folder` tells its own clocks back, whoever locked them, and forgets it: what a
// process does at its start, before it measures, alone with the folder. The first error; what could not be restored
// stays recorded, for the next start.
absl::Status RestoreClocks(const std::string& record_folder);

// The same for one device, where `owner` locked it; OK where nothing is recorded of it, or another's lock.
absl::Status RestoreClock(const std::string& record_folder, absl::string_view uuid, absl::string_view owner);

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_CLOCK_LOCK_H_
