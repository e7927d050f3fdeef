// A GPU's UUID as NVML writes it: by it CUDA's devices are found among NVML's, whose numbers are others.
#ifndef KEVAL_CORE_LINEAR_LOGP_GPU_UUID_H_
#define KEVAL_CORE_LINEAR_LOGP_GPU_UUID_H_

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace keval::linear_logp {

// `bytes`: the 16 of cudaUUID_t. "GPU-" and their digits in groups of 4, 2, 2, 2 and 6 bytes.
inline std::string GpuUuidText(absl::string_view bytes) {
  const std::string hex = absl::BytesToHexString(bytes);
  return absl::StrCat("GPU-", hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-", hex.substr(16, 4),
                      "-", hex.substr(20));
}

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_GPU_UUID_H_
