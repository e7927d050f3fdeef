#include "core/linear_logp/cuda_status.h"

#include "absl/strings/str_cat.h"
#include "core/linear_logp/failure_text.h"

namespace keval::linear_logp {
namespace {

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorCudartUnloading:
      return absl::StatusCode::kUnavailable;
    // After these every further call of the process fails.
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorLaunchTimeout:
    case cudaErrorLaunchFailure:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
      return absl::StatusCode::kAborted;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) {
    return absl::OkStatus();
  }
  return {CodeOf(error), FailureMessage(absl::StrCat(what, ": ", cudaGetErrorString(error)))};
}

}  // namespace keval::linear_logp
