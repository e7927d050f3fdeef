// NVIDIA's management library, loaded at run time: a node without a GPU has none.
#ifndef KEVAL_CORE_MEASURE_NVML_H_
#define KEVAL_CORE_MEASURE_NVML_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace keval::measure {

// A device's state at one moment; NaN where the device does not tell.
struct DeviceReading {
  double sm_clock_mhz = std::numeric_limits<double>::quiet_NaN();
  double memory_clock_mhz = std::numeric_limits<double>::quiet_NaN();
  double power_watts = std::numeric_limits<double>::quiet_NaN();
  double temperature_celsius = std::numeric_limits<double>::quiet_NaN();
  std::uint64_t throttle_reasons = 0;  // NVML's bits.
  std::vector<unsigned> process_ids;   // With a compute context there, this one included where it is listed.
  bool processes_known = false;
  // How long the device has been slowed for heat since its driver was loaded, in the driver's unit; nullopt where it
  // keeps no account.
  std::optional<std::uint64_t> thermal_violation;
};

// Whether `reasons` make a block's times unfit: the hardware or a thermal limit slowed the clocks. The software power
// cap is not among them: large shapes reach it under steady load, and an arm that draws more power pays for it in
// production too. It is recorded with every block all the same.
bool IsThrottled(std::uint64_t reasons);

// Processes of `reading` that are none of `own`; nullopt where that can't be told: the device tells no processes, or
// none of `own`, which has the asking one, is among them, so that their numbers are of another PID namespace.
std::optional<int> OtherProcesses(const DeviceReading& reading, const std::vector<int>& own);

// "2 with a context: 662 kevald, 790 keval-worker": names as this process's PID namespace has them.
std::string ProcessesText(const DeviceReading& reading);

// NVML's bits of what slowed the device at some moment between two readings: what was `seen` meanwhile, and heat where
// the device's account of it has grown.
std::uint64_t ReasonsBetween(const DeviceReading& before, const DeviceReading& after, std::uint64_t seen);

// "thermal (software), power brake" and so on; "none" for 0.
std::string ThrottleReasonsText(std::uint64_t reasons);

// Thread-compatible; one library handle, shut down with the object.
class Nvml {
 public:
  // Loads $KEVAL_NVML_LIBRARY, else libnvidia-ml.so.1, and selects the device that CUDA calls `uuid` ("GPU-…"). NVML
  // counts devices that CUDA_VISIBLE_DEVICES hides, so an index would name the wrong one. UNAVAILABLE where the library
  // can't be loaded or started; NOT_FOUND where it knows no such device.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(absl::string_view uuid);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  DeviceReading Read() const;
  // Of this moment alone, at the cost of one question; 0 where the device does not tell.
  std::uint64_t ThrottleReasons() const;

  // Whether the driver says that the device is gone, or of no use until it is reset.
  bool IsLost() const;

  // Whether the device is split into MIG instances; false where it does not tell.
  bool IsSplit() const;

  // Holds the SM clock at `mhz`, for every process and until UnlockSmClock or a reboot, whoever locked it before.
  // UNAVAILABLE with NVML's reason (usually: no permission).
  absl::Status LockSmClock(unsigned mhz) const;
  absl::Status UnlockSmClock() const;

  // Name to text: model, driver, limits, clocks. Names begin with "gpu_" or "driver_".
  std::map<std::string, std::string> Describe() const;

 private:
  struct State;
  explicit Nvml(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_NVML_H_
