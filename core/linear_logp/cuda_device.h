// What core asks of the CUDA runtime itself; every function is there in a build without CUDA too and says so.
#ifndef KEVAL_CORE_LINEAR_LOGP_CUDA_DEVICE_H_
#define KEVAL_CORE_LINEAR_LOGP_CUDA_DEVICE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/linear_logp/engine.h"

namespace keval::linear_logp {

// Devices that the runtime shows to this process, in its order. 0 with the reason in `note` ("built with CUDA, no
// device found: …"; empty in a build without CUDA).
int CudaDeviceCount(std::string* note);

// That reason. `driver_version`: cudaDriverGetVersion's, 0 where no driver is installed; the runtime's own `error`
// calls that one too old. `visible_devices`: CUDA_VISIBLE_DEVICES as this process has it, null where it isn't set; one
// that hides every device looks like a machine without any.
std::string NoCudaDeviceNote(int driver_version, absl::string_view error, const char* visible_devices);

// Model, UUID ("GPU-…", as NVML writes it), compute capability, memory. FAILED_PRECONDITION where the device can't be
// asked. Makes the device's context.
absl::StatusOr<DeviceDescription> DescribeCudaDevice(int index);

// Bytes that an allocation could get: the device's free ones, and what the caching allocator holds unused.
// FAILED_PRECONDITION where the device can't be asked.
absl::StatusOr<std::int64_t> CudaFreeBytes(int index);

// Waits for the device, and forgets an error that doesn't last. ABORTED, naming the error, for one that does: the
// context is lost.
absl::Status CudaStickyError(int index);

// The same, told apart: UNAVAILABLE where the error says that the device itself is lost, to whoever used it; ABORTED
// where it is this process's context.
absl::Status CudaLoss(int index);

// Gives the caching allocator's unused blocks back to the device.
void ReleaseCudaCache();

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_CUDA_DEVICE_H_
