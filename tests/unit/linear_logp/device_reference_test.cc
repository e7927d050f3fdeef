// The device reference of the large shapes against the host's loops: the yardstick is measured too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "core/linear_logp/reference.h"
#include "tests/support/device_reference.h"

namespace keval::linear_logp {
namespace {

using test_support::ComputeDeviceReference;
using test_support::DeviceReference;
using test_support::Values;

using SmallDeviceReferenceTest = test_support::OperatorTest;

// Both are float64 and differ in the order of their sums alone: some D or V or N roundings of 2^-53 each.
void ExpectNear(const char* name, const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size()) << name;
  double largest = 0;
  for (const double value : want) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12 * largest) << name << " " << i;
}

void ExpectSameAsHost(const ReferenceInputs& values, std::int64_t block_elements) {
  const ReferenceResult want = ComputeReference(values);
  const DeviceReference got = ComputeDeviceReference(test_support::ToInputs(values, at::kFloat), block_elements);
  EXPECT_NEAR(got.max_abs_logit, want.max_abs_logit, 1e-12 * want.max_abs_logit);
  ExpectNear("logp", Values(got.logp), want.logp);
  ExpectNear("grad_hidden", Values(got.grad_hidden), want.grad_hidden);
  ExpectNear("summed_hidden", Values(got.summed_hidden), want.summed_hidden);
  ExpectNear("grad_weight", Values(got.grad_weight), want.grad_weight);
  ExpectNear("summed_weight", Values(got.summed_weight), want.summed_weight);
  ExpectNear("grad_bias", Values(got.grad_bias), want.grad_bias);
  ExpectNear("summed_bias", Values(got.summed_bias), want.summed_bias);
}

TEST_F(SmallDeviceReferenceTest, IsTheHostsWithAndWithoutBiasInOneBlockAndInSeveral) {
  // SeededValues are exact in float32.
  for (const bool with_bias : {true, false}) {
    const ReferenceInputs values = test_support::SeededValues(37, 24, 301, with_bias, 41);
    ExpectSameAsHost(values, 1 << 20);
    ExpectSameAsHost(values, 5 * 301 + 7);  // Blocks of 5 tokens, the last of 2.
    ExpectSameAsHost(values, 1);            // Of one.
  }
}

TEST_F(SmallDeviceReferenceTest, ANearlyCertainTargetKeepsItsDigits) {
  // dz at the target is the sum of the other words' p, about 1e-13: 1 - p would have three digits left.
  ReferenceInputs values = test_support::SeededValues(6, 8, 19, true, 7);
  for (std::size_t token = 0; token < values.targets.size(); ++token) values.targets[token] = 3;
  values.bias->at(3) = 32;
  const ReferenceResult want = ComputeReference(values);
  const DeviceReference got = ComputeDeviceReference(test_support::ToInputs(values, at::kFloat));
  ExpectNear("grad_hidden", Values(got.grad_hidden), want.grad_hidden);
  EXPECT_LT(std::abs(Values(got.grad_bias).at(3)), 1e-9);
  EXPECT_NE(Values(got.grad_bias).at(3), 0);
}

}  // namespace
}  // namespace keval::linear_logp
