// C12: offsets past 2^31 elements, in the logits and in the weight.
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/support/device_reference.h"

namespace keval::linear_logp {
namespace {

using test_support::Compute;
using test_support::Result;

constexpr std::int64_t kTwoTo31 = std::int64_t{1} << 31;

using LargeOffsetsTest = test_support::OperatorTest;

TEST_F(LargeOffsetsTest, C12MoreThanTwoTo31LogitsAtOnce) {
  constexpr std::int64_t kTokens = 16500;
  constexpr std::int64_t kWidth = 16;
  constexpr std::int64_t kWords = 131073;
  static_assert(kTokens * kWords > kTwoTo31);
  const VariantInputs inputs = test_support::RandomInputs(kTokens, kWidth, kWords, true, at::kFloat, 12);
  const test_support::DeviceReference want = test_support::ComputeDeviceReference(inputs);
  for (const std::string& variant : test_support::kVariants) {
    SCOPED_TRACE(variant);
    const Result got = Compute(variant, inputs, {.chunk_elems = 2 * kTwoTo31});  // One chunk.
    EXPECT_EQ(got.dispatch.chunks, 1);
    test_support::ExpectDeviceLogp(got.logp, want.logp, want.max_abs_logit, kWidth);
    test_support::ExpectDeviceC2("grad_hidden", got.gradients.grad_hidden, want.grad_hidden, want.summed_hidden,
                                 want.max_abs_logit);
    // The last tokens alone: a wrapped offset would spoil them and drown in the whole.
    test_support::ExpectDeviceC2("last rows", got.gradients.grad_hidden.narrow(0, kTokens - 200, 200),
                                 want.grad_hidden.narrow(0, kTokens - 200, 200),
                                 want.summed_hidden.narrow(0, kTokens - 200, 200), want.max_abs_logit);
    test_support::ExpectDeviceC2("grad_weight", got.gradients.grad_weight, want.grad_weight, want.summed_weight,
                                 want.max_abs_logit);
    test_support::ExpectDeviceC2("grad_bias", got.gradients.grad_bias, want.grad_bias, want.summed_bias,
                                 want.max_abs_logit);
  }
}

TEST_F(LargeOffsetsTest, C12AWeightOfMoreThanTwoTo31Elements) {
  constexpr std::int64_t kTokens = 64;
  constexpr std::int64_t kWidth = 2048;
  constexpr std::int64_t kWords = 1050000;
  static_assert(kWidth * kWords > kTwoTo31);
  VariantInputs inputs = test_support::RandomInputs(kTokens, kWidth, kWords, false, at::kBFloat16, 13);
  inputs.targets[0].fill_(kWords - 1);
  inputs.targets[1].fill_(kTwoTo31 / kWidth);
  const at::Tensor weight = inputs.weight.to(at::kDouble);
  const test_support::LogitsReference want = test_support::ComputeLogitsReference(inputs, weight);
  const at::Tensor hidden = inputs.hidden.to(at::kDouble);
  const at::Tensor grad_hidden = want.dz.matmul(weight);
  const at::Tensor summed_hidden = want.summed.matmul(weight.abs());
  for (const char* variant : {test_support::kBase, test_support::kCandidate}) {
    SCOPED_TRACE(variant);
    const Result got = Compute(variant, inputs);
    test_support::ExpectDeviceLogp(got.logp, want.logp, want.max_abs_logit, kWidth);
    test_support::ExpectDeviceC2("grad_hidden", got.gradients.grad_hidden, grad_hidden, summed_hidden,
                                 want.max_abs_logit);
    for (const std::int64_t begin : {std::int64_t{0}, kTwoTo31 / kWidth - 256, kWords - 512}) {
      const at::Tensor left = want.dz.narrow(1, begin, 512).t();
      const at::Tensor magnitudes = want.summed.narrow(1, begin, 512).t();
      test_support::ExpectDeviceC2("512 rows of grad_weight", got.gradients.grad_weight.narrow(0, begin, 512),
                                   left.matmul(hidden), magnitudes.matmul(hidden.abs()), want.max_abs_logit);
    }
  }
}

}  // namespace
}  // namespace keval::linear_logp
