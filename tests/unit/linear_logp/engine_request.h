// Requests of one small shape for tests of the engine.
#ifndef KEVAL_TESTS_UNIT_LINEAR_LOGP_ENGINE_REQUEST_H_
#define KEVAL_TESTS_UNIT_LINEAR_LOGP_ENGINE_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/linear_logp/engine.h"
#include "core/linear_logp/host_tensor.h"
#include "tests/support/operator_testing.h"

namespace keval::linear_logp {

inline constexpr std::int64_t kTokens = 21;
inline constexpr std::int64_t kWidth = 16;
inline constexpr std::int64_t kWords = 40;
inline constexpr std::int64_t kChunkElems = 8 * kWords;  // 8, 8 and 5 tokens.

struct Request {
  Problem problem;
  Inputs inputs;
};

inline Request MakeRequest(at::ScalarType type, bool with_bias, std::uint64_t seed = 11) {
  const VariantInputs tensors =
      test_support::ToInputs(test_support::SeededValues(kTokens, kWidth, kWords, with_bias, seed), type);
  Request request;
  request.inputs.hidden = ToHost(tensors.hidden, {3, 7, kWidth});
  request.inputs.weight = ToHost(tensors.weight, {kWords, kWidth});
  request.inputs.targets = ToHost(tensors.targets, {3, 7});
  request.inputs.grad_logp = ToHost(tensors.grad_logp, {3, 7});
  TensorSpecs specs = {.hidden = request.inputs.hidden.spec,
                       .weight = request.inputs.weight.spec,
                       .targets = request.inputs.targets.spec,
                       .grad_logp = request.inputs.grad_logp->spec};
  if (with_bias) {
    request.inputs.bias = ToHost(tensors.bias, {kWords});
    specs.bias = request.inputs.bias->spec;
  }
  request.problem = ValidateProblem(specs, !test_support::TestDevice().cuda).value();
  return request;
}

inline std::string BytesOf(const HostTensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.data),  // NOLINT(*-reinterpret-cast)
          static_cast<std::size_t>(NumBytes("tensor", tensor.spec).value())};
}

}  // namespace keval::linear_logp

#endif  // KEVAL_TESTS_UNIT_LINEAR_LOGP_ENGINE_REQUEST_H_
