// linear_logp as a differentiable torch operation over any variant.
#ifndef KEVAL_CORE_LINEAR_LOGP_AUTOGRAD_FUNCTION_H_
#define KEVAL_CORE_LINEAR_LOGP_AUTOGRAD_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include "core/linear_logp/variant.h"

namespace keval::linear_logp {

// logp [...] of hidden [..., D], weight [V, D], bias [V] or undefined, targets [...] int32 or int64; any strides. Its
// backward computes the gradients that are needed and no other, by `variant`, in the inputs' dtype. Under create_graph
// it recomputes with differentiable operators instead (holding [N, V]), so that higher derivatives are right.
// Options::autocast is set for forward and backward, whatever the threads that run them have; `check` is asked between
// chunks of both and throws Stopped. Throws c10::Error like any torch code. `variant` outlives the graph.
at::Tensor LinearLogp(const Variant& variant, const Options& options, const at::Tensor& hidden,
                      const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& targets,
                      const ContinueCheck& check = nullptr);

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_AUTOGRAD_FUNCTION_H_
