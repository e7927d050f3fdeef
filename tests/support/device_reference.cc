#include "tests/support/device_reference.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

namespace keval::test_support {
namespace {

using linear_logp::VariantInputs;

double Norm(const at::Tensor& tensor) { return tensor.to(at::kDouble).norm().item<double>(); }

double Roundoff(at::ScalarType type) {
  return std::ldexp(1.0, type == at::kFloat ? -24 : type == at::kHalf ? -11 : -8);
}

// Tokens [begin, begin + count) of `inputs`, without weight and bias.
VariantInputs Slice(const VariantInputs& inputs, std::int64_t begin, std::int64_t count) {
  VariantInputs slice = inputs;
  slice.hidden = inputs.hidden.narrow(0, begin, count);
  slice.targets = inputs.targets.narrow(0, begin, count);
  slice.grad_logp = inputs.grad_logp.narrow(0, begin, count);
  return slice;
}

}  // namespace

LogitsReference ComputeLogitsReference(const VariantInputs& inputs, const at::Tensor& weight) {
  const at::Tensor column = inputs.targets.unsqueeze(1);
  const at::Tensor upstream = inputs.grad_logp.to(at::kDouble).unsqueeze(1);
  at::Tensor logits = inputs.hidden.to(at::kDouble).matmul(weight.t());
  if (inputs.bias.defined()) logits = logits + inputs.bias.to(at::kDouble);
  LogitsReference result;
  result.max_abs_logit = logits.abs().max().item<double>();
  const at::Tensor largest = logits.amax({1}, true);
  const at::Tensor target_logits = logits.gather(1, column);
  at::Tensor p = (logits - largest).exp();
  logits.reset();
  const at::Tensor sum = p.sum(1, true);
  p.div_(sum);
  result.logp = (target_logits - largest - sum.log()).squeeze(1);
  const at::Tensor p_target = p.gather(1, column);
  p.scatter_(1, column, 0);
  const at::Tensor others = p.sum(1, true);  // 1 - p without a cancellation.
  result.dz = at::mul(p, -upstream).scatter(1, column, at::mul(others, upstream));
  result.summed = p.mul_(upstream.abs()).scatter_(1, column, at::mul(p_target + 1, upstream.abs()));
  return result;
}

DeviceReference ComputeDeviceReference(const VariantInputs& inputs, std::int64_t block_elements) {
  const std::int64_t tokens = inputs.hidden.size(0);
  const std::int64_t words = inputs.weight.size(0);
  const at::TensorOptions options = inputs.hidden.options().dtype(at::kDouble);
  const at::Tensor weight = inputs.weight.to(at::kDouble);
  const at::Tensor weight_magnitudes = weight.abs();
  DeviceReference result;
  result.logp = at::empty({tokens}, options);
  result.grad_hidden = at::empty(inputs.hidden.sizes(), options);
  result.summed_hidden = at::empty(inputs.hidden.sizes(), options);
  result.grad_weight = at::zeros(inputs.weight.sizes(), options);
  result.summed_weight = at::zeros(inputs.weight.sizes(), options);
  result.grad_bias = at::zeros({words}, options);
  result.summed_bias = at::zeros({words}, options);
  const std::int64_t block = std::max<std::int64_t>(1, block_elements / words);
  for (std::int64_t begin = 0; begin < tokens; begin += block) {
    const std::int64_t count = std::min(block, tokens - begin);
    const VariantInputs slice = Slice(inputs, begin, count);
    const LogitsReference logits = ComputeLogitsReference(slice, weight);
    const at::Tensor hidden = slice.hidden.to(at::kDouble);
    result.max_abs_logit = std::max(result.max_abs_logit, logits.max_abs_logit);
    result.logp.narrow(0, begin, count).copy_(logits.logp);
    result.grad_hidden.narrow(0, begin, count).copy_(logits.dz.matmul(weight));
    result.summed_hidden.narrow(0, begin, count).copy_(logits.summed.matmul(weight_magnitudes));
    result.grad_weight.addmm_(logits.dz.t(), hidden);
    result.summed_weight.addmm_(logits.summed.t(), hidden.abs());
    result.grad_bias.add_(logits.dz.sum(0));
    result.summed_bias.add_(logits.summed.sum(0));
  }
  return result;
}

VariantInputs RandomInputs(std::int64_t num_tokens, std::int64_t hidden_size, std::int64_t vocab_size, bool with_bias,
                           at::ScalarType type, std::uint64_t seed) {
  at::manual_seed(seed);
  const at::TensorOptions options = at::TensorOptions(TestTorchDevice()).dtype(at::kFloat);
  VariantInputs inputs;
  inputs.hidden = at::randn({num_tokens, hidden_size}, options).to(type);
  inputs.weight =
      at::randn({vocab_size, hidden_size}, options).mul_(2 / std::sqrt(static_cast<double>(hidden_size))).to(type);
  if (with_bias) inputs.bias = at::randn({vocab_size}, options).to(type);
  inputs.targets = at::randint(vocab_size, {num_tokens}, options.dtype(at::kLong));
  inputs.grad_logp = at::randn({num_tokens}, options);
  return inputs;
}

void ExpectDeviceC2(const char* name, const at::Tensor& got, const at::Tensor& want, const at::Tensor& summed,
                    double max_abs_logit) {
  const double epsilon = 5e-6 + 8 * std::ldexp(1.0, -24) * max_abs_logit;
  const double error = Norm(got.to(at::kDouble) - want);
  EXPECT_LE(error, epsilon * Norm(summed) + Roundoff(got.scalar_type()) * Norm(want)) << name;
}

LogpAccuracy ExpectDeviceLogp(const at::Tensor& got, const at::Tensor& want, double max_abs_logit,
                              std::int64_t hidden_size) {
  const LogpAccuracy accuracy = MeasureLogp(Values(got), Values(want), max_abs_logit, hidden_size);
  EXPECT_EQ(ProblemWith(accuracy), "");
  return accuracy;
}

}  // namespace keval::test_support
