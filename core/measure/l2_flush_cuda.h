// The kernel behind L2Flush; compiled by nvcc, no torch.
#ifndef KEVAL_CORE_MEASURE_L2_FLUSH_CUDA_H_
#define KEVAL_CORE_MEASURE_L2_FLUSH_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"

namespace keval::measure {

// Queues a write of every 32-bit word of `buffer`, which is `bytes` long, a multiple of 16. `stream`: a cudaStream_t.
absl::Status OverwriteOnDevice(void* stream, void* buffer, std::int64_t bytes);

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_L2_FLUSH_CUDA_H_
