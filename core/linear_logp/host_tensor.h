// Between host memory and torch tensors on a device.
#ifndef KEVAL_CORE_LINEAR_LOGP_HOST_TENSOR_H_
#define KEVAL_CORE_LINEAR_LOGP_HOST_TENSOR_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/linear_logp/engine.h"

namespace keval::linear_logp {

at::ScalarType TorchType(DType dtype);

// `tensor` on `device`, contiguous, as [shape...]. On a CPU the result reads the host memory itself where that is
// aligned to 64 bytes (which must then outlive it), else a copy: a product over differently aligned memory may round
// differently, and the same input must give the same bits.
at::Tensor ToDevice(const HostTensor& tensor, const std::vector<std::int64_t>& shape, c10::Device device);

// `tensor` in host memory, contiguous, declared as `shape`. Waits for the device.
HostTensor ToHost(const at::Tensor& tensor, std::vector<std::int64_t> shape);

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_HOST_TENSOR_H_
