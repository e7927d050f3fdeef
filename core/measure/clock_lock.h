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
// process that is killed: RestoreClocks undoes what it tells of. Thread-compatible; one a device.
class ClockLock {
 public:
  // The device is left as it is, with the reason, where another process has a context there or that can't be known
  // (FAILED_PRECONDITION), it is split (FAILED_PRECONDITION), the driver does not let us (UNAVAILABLE), or NVML or the
  // folder can't be used (UNAVAILABLE, or the error of the file).
  static absl::StatusOr<std::unique_ptr<ClockLock>> Take(absl::string_view uuid, unsigned mhz,
                                                         const std::string& record_folder);
  ~ClockLock();
  ClockLock(const ClockLock&) = delete;
  ClockLock& operator=(const ClockLock&) = delete;

 private:
  ClockLock(std::unique_ptr<Nvml> nvml, std::string record) : nvml_(std::move(nvml)), record_(std::move(record)) {}

  const std::unique_ptr<Nvml> nvml_;
  const std::string record_;
};

// Gives every device of which `record_folder` tells its own clocks back, and forgets it: what a process does at its
// start, before it measures. The first error; what could not be restored stays recorded, for the next start.
absl::Status RestoreClocks(const std::string& record_folder);

// The same for one device; OK where nothing is recorded of it.
absl::Status RestoreClock(const std::string& record_folder, absl::string_view uuid);

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_CLOCK_LOCK_H_
