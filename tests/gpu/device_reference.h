// A float64 reference for shapes that the host's loops are too slow for: plain operators on the device, in blocks of
// tokens. It shares no operator with the variants but the product itself, in another precision.
#ifndef KEVAL_TESTS_GPU_DEVICE_REFERENCE_H_
#define KEVAL_TESTS_GPU_DEVICE_REFERENCE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/linear_logp/variant.h"
#include "tests/support/operator_testing.h"

namespace keval::test_support {

// float64, on the device. `summed_…` are C2's magnitudes S.
struct DeviceReference {
  at::Tensor logp;
  at::Tensor grad_hidden, summed_hidden;
  at::Tensor grad_weight, summed_weight;
  at::Tensor grad_bias, summed_bias;
  double max_abs_logit = 0;
};

DeviceReference ComputeDeviceReference(const linear_logp::VariantInputs& inputs);

// dz and C2's M for every token, [N, V] float64, with `weight` [V, D] float64: for inputs with few tokens.
struct LogitsReference {
  at::Tensor logp;
  at::Tensor dz;
  at::Tensor summed;
  double max_abs_logit = 0;
};
LogitsReference ComputeLogitsReference(const linear_logp::VariantInputs& inputs, const at::Tensor& weight);

// Random inputs on the test's device: logits with a standard deviation of 2.
linear_logp::VariantInputs RandomInputs(std::int64_t num_tokens, std::int64_t hidden_size, std::int64_t vocab_size,
                                        bool with_bias, at::ScalarType type, std::uint64_t seed);

// C2 of one gradient: ‖error‖ <= epsilon ‖S‖ + u ‖want‖, with C2's epsilon for `max_abs_logit`.
void ExpectDeviceC2(const char* name, const at::Tensor& got, const at::Tensor& want, const at::Tensor& summed,
                    double max_abs_logit);

// C2 of logp.
void ExpectDeviceLogp(const at::Tensor& got, const at::Tensor& want, double max_abs_logit);

}  // namespace keval::test_support

#endif  // KEVAL_TESTS_GPU_DEVICE_REFERENCE_H_
