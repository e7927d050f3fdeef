// The kernels behind Delay; compiled by nvcc, no torch.
#ifndef KEVAL_CORE_MEASURE_DELAY_CUDA_H_
#define KEVAL_CORE_MEASURE_DELAY_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"

namespace keval::measure {

// Queues a store of the device's clock, in nanoseconds, to `*begin` on the device. `stream`: a cudaStream_t.
absl::Status NoteDeviceTime(void* stream, std::uint64_t* begin);

// Queues a wait of `fraction` of the time that has passed since `*begin` when the wait begins.
absl::Status WaitForFraction(void* stream, const std::uint64_t* begin, double fraction);

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_DELAY_CUDA_H_
