// A float64 reference for shapes that the host's loops are too slow for: plain operators on the device, in blocks of
// tokens. It shares no operator with the variants but the product itself, in another precision;
// device_reference_test.cc compares it with the host's.
#ifndef KEVAL_TESTS_SUPPORT_DEVICE_REFERENCE_H_
#define KEVAL_TESTS_SUPPORT_DEVICE_REFERENCE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/linear_logp/variant.h"
#include "tests/support/logp_accuracy.h"
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

// `block_elements`: logits that are made at once; by default 512 MiB of float64.
DeviceReference ComputeDeviceReference(const linear_logp::VariantInputs& inputs,
                                       std::int64_t block_elements = std::int64_t{1} << 26);

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

// C2 of logp, with the allowance of ProblemWith for a large hidden_size. Returns the figures.
LogpAccuracy ExpectDeviceLogp(const at::Tensor& got, const at::Tensor& want, double max_abs_logit,
                              std::int64_t hidden_size);

}  // namespace keval::test_support

#endif  // KEVAL_TESTS_SUPPORT_DEVICE_REFERENCE_H_
