// One device as a worker uses it.
#ifndef KEVAL_CORE_MEASURE_DEVICE_SESSION_H_
#define KEVAL_CORE_MEASURE_DEVICE_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/running.h"
#include "core/linear_logp/engine.h"
#include "core/measure/l2_flush.h"
#include "core/measure/nvml.h"
#include "core/measure/raw_memory.h"
#include "core/measure/timer.h"

namespace keval::measure {

// Owns the device's stream, timer, cache overwrite and NVML handle for the worker's one thread, which makes every call;
// as long as it lives, that stream is current for torch on that thread, and precision settings are explicit (no TF32,
// no reduced-precision reductions). One a process.
class DeviceSession {
 public:
  // `threads`: of torch on a CPU, at least 1. `mark`, if any, outlives the session. FAILED_PRECONDITION where the
  // device can't be used.
  static absl::StatusOr<std::unique_ptr<DeviceSession>> Open(const linear_logp::Device& device, int threads,
                                                             RunningMark* mark = nullptr);
  ~DeviceSession();
  DeviceSession(const DeviceSession&) = delete;
  DeviceSession& operator=(const DeviceSession&) = delete;

  const linear_logp::Device& device() const;
  MemoryPlace place() const;
  Timer& timer() const;
  L2Flush& flush() const;
  int threads() const;
  // "GPU-…", as CUDA says; empty on a CPU.
  const std::string& uuid() const;

  // Whose code runs from here on, for whoever asks after a crash.
  void MarkRunning(Running who) const;

  // Waits for everything queued.
  absl::Status Synchronize() const;

  // All NaN on a CPU and where NVML can't be used; then NvmlNote says why.
  DeviceReading Read() const;
  // Of this moment; 0 where they aren't known.
  std::uint64_t ThrottleReasons() const;
  // What a failed call's `status` comes to: UNAVAILABLE where NVML says that the device is lost, which CUDA may tell as
  // any error of the call.
  absl::Status Explained(absl::Status status) const;
  const Nvml* nvml() const;
  const std::string& NvmlNote() const;
  // Readings come from `nvml` from here on, whatever the device.
  void UseNvmlForTest(std::unique_ptr<Nvml> nvml);

 private:
  struct State;
  explicit DeviceSession(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_DEVICE_SESSION_H_
