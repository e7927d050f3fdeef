// CUDA errors as statuses; only CUDA builds include this.
#ifndef KEVAL_CORE_LINEAR_LOGP_CUDA_STATUS_H_
#define KEVAL_CORE_LINEAR_LOGP_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace keval::linear_logp {

// By the error's number, with the codes of failure_text.h. OK; RESOURCE_EXHAUSTED: out of device memory; UNAVAILABLE:
// the device is lost; ABORTED: the context is poisoned (illegal access and its like), so the process must go.
absl::Status CudaStatus(cudaError_t error, absl::string_view what);

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_CUDA_STATUS_H_
