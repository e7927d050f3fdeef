// C4 to C7, C10, C11: empty, zero, partly wanted, strided, non-finite and masked inputs.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "tests/support/operator_testing.h"

namespace keval::linear_logp {
namespace {

using test_support::Compute;
using test_support::kBase;
using test_support::kVariants;
using test_support::OperandTypes;
using test_support::Result;
using test_support::SameBits;
using test_support::ToInputs;
using test_support::Values;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kTokens = 7;
constexpr std::int64_t kWidth = 8;
constexpr std::int64_t kWords = 19;
const Options kTwoTokenChunks = {.chunk_elems = 2 * kWords};

ReferenceInputs SmallValues(bool with_bias = true) {
  return test_support::SeededValues(kTokens, kWidth, kWords, with_bias, 11);
}

class SmallInputsTest : public test_support::OperatorTest {};

TEST_F(SmallInputsTest, C4NoTokensGiveEmptyAndZeroResults) {
  ReferenceInputs values = test_support::SeededValues(0, kWidth, kWords, true, 1);
  for (const at::ScalarType type : OperandTypes()) {
    for (const std::string& variant : kVariants) {
      const Result result = Compute(variant, ToInputs(values, type));
      EXPECT_EQ(result.logp.sizes(), (std::vector<std::int64_t>{0}));
      EXPECT_EQ(result.gradients.grad_hidden.sizes(), (std::vector<std::int64_t>{0, kWidth}));
      EXPECT_EQ(Values(result.gradients.grad_weight), std::vector<double>(kWords * kWidth)) << variant;
      EXPECT_EQ(Values(result.gradients.grad_bias), std::vector<double>(kWords)) << variant;
      EXPECT_EQ(result.dispatch.chunks, 0);
    }
  }
}

TEST_F(SmallInputsTest, C5ZeroUpstreamGivesZerosWithBasesSigns) {
  ReferenceInputs values = SmallValues();
  values.grad_logp.assign(kTokens, 0);
  for (const at::ScalarType type : OperandTypes()) {
    const VariantInputs inputs = ToInputs(values, type);
    const Gradients base = Compute(kBase, inputs, kTwoTokenChunks).gradients;
    const Gradients candidate = Compute(test_support::kCandidate, inputs, kTwoTokenChunks).gradients;
    for (const auto& [a, b] :
         {std::pair(base.grad_hidden, candidate.grad_hidden), std::pair(base.grad_weight, candidate.grad_weight),
          std::pair(base.grad_bias, candidate.grad_bias)}) {
      for (const double value : Values(a)) ASSERT_EQ(value, 0);
      EXPECT_TRUE(SameBits(a, b)) << c10::toString(type);
    }
    for (const double value : Values(base.grad_weight)) {
      ASSERT_FALSE(std::signbit(value)) << "P4: a zeroed table has no -0";
    }
  }
}

TEST_F(SmallInputsTest, C6EveryCombinationOfGradientsWithAndWithoutBias) {
  for (const bool with_bias : {true, false}) {
    for (const at::ScalarType type : OperandTypes()) {
      const VariantInputs inputs = ToInputs(SmallValues(with_bias), type);
      for (const std::string& variant : kVariants) {
        const Gradients all = Compute(variant, inputs, kTwoTokenChunks).gradients;
        EXPECT_EQ(all.grad_bias.defined(), with_bias);
        for (unsigned mask = 0; mask < 8; ++mask) {
          const Want want = {(mask & 1U) != 0, (mask & 2U) != 0, (mask & 4U) != 0};
          SCOPED_TRACE(::testing::Message() << variant << " mask " << mask << " bias " << with_bias);
          const Gradients some = Compute(variant, inputs, kTwoTokenChunks, want).gradients;
          EXPECT_TRUE(SameBits(some.grad_hidden, want.hidden ? all.grad_hidden : at::Tensor()));
          EXPECT_TRUE(SameBits(some.grad_weight, want.weight ? all.grad_weight : at::Tensor()));
          EXPECT_TRUE(SameBits(some.grad_bias, want.bias ? all.grad_bias : at::Tensor()));
        }
      }
    }
  }
}

TEST_F(SmallInputsTest, C7StridesOfTheUpstreamChangeNothing) {
  const auto one_number = test_support::LoadLinearLogpCase("reports/upstream_one_number_expanded.json");
  ASSERT_TRUE(one_number.ok()) << one_number.status();
  for (const at::ScalarType type : OperandTypes()) {
    const VariantInputs inputs = ToInputs(SmallValues(), type);
    const at::Tensor wide = at::empty({kTokens, 3}, inputs.grad_logp.options());
    wide.select(1, 1).copy_(inputs.grad_logp);
    VariantInputs strided = inputs;
    strided.grad_logp = wide.select(1, 1);
    const VariantInputs stored = ToInputs(test_support::ValuesOf(*one_number), type);
    VariantInputs expanded = stored;
    expanded.grad_logp = stored.grad_logp.narrow(0, 0, 1).clone().expand({one_number->num_tokens});
    ASSERT_EQ(expanded.grad_logp.stride(0), 0);
    for (const std::string& variant : kVariants) {
      SCOPED_TRACE(::testing::Message() << variant << ' ' << c10::toString(type));
      for (const auto& [contiguous, other] : {std::pair(inputs, strided), std::pair(stored, expanded)}) {
        const Gradients want = Compute(variant, contiguous, kTwoTokenChunks).gradients;
        const Gradients got = Compute(variant, other, kTwoTokenChunks).gradients;
        EXPECT_TRUE(SameBits(got.grad_hidden, want.grad_hidden));
        EXPECT_TRUE(SameBits(got.grad_weight, want.grad_weight));
        EXPECT_TRUE(SameBits(got.grad_bias, want.grad_bias));
      }
    }
  }
}

TEST_F(SmallInputsTest, C10ANonFiniteTokenSpoilsOnlyItsOwnRow) {
  constexpr std::int64_t kSpoilt = 3;
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity}) {
    ReferenceInputs values = SmallValues();
    const ReferenceInputs sound = values;
    values.hidden[kSpoilt * kWidth + 2] = bad;
    values.grad_logp[kSpoilt] = 0;  // 0 x NaN is NaN all the same.
    for (const at::ScalarType type : OperandTypes()) {
      for (const std::string& variant : kVariants) {
        SCOPED_TRACE(::testing::Message() << variant << ' ' << c10::toString(type) << ' ' << bad);
        const Result want = Compute(variant, ToInputs(sound, type), kTwoTokenChunks);
        const Result got = Compute(variant, ToInputs(values, type), kTwoTokenChunks);
        EXPECT_FALSE(std::isfinite(Values(got.logp)[kSpoilt]));
        for (std::int64_t token = 0; token < kTokens; ++token) {
          if (token == kSpoilt) continue;
          EXPECT_TRUE(SameBits(got.logp[token], want.logp[token])) << token;
          EXPECT_TRUE(SameBits(got.gradients.grad_hidden[token], want.gradients.grad_hidden[token])) << token;
        }
        for (const double value : Values(got.gradients.grad_weight)) ASSERT_TRUE(std::isnan(value));
        for (const double value : Values(got.gradients.grad_bias)) ASSERT_TRUE(std::isnan(value));
      }
    }
  }
}

TEST_F(SmallInputsTest, C11AMaskedWordGetsNothingUnlessItIsTheTarget) {
  constexpr std::int64_t kMasked = 5;
  ReferenceInputs values = SmallValues();
  for (std::int64_t& target : values.targets) target = target == kMasked ? 0 : target;
  (*values.bias)[kMasked] = -kInfinity;
  for (const at::ScalarType type : OperandTypes()) {
    for (const std::string& variant : kVariants) {
      SCOPED_TRACE(::testing::Message() << variant << ' ' << c10::toString(type));
      const test_support::Sample sample = test_support::MakeSample("masked", values, type);
      const Result result = Compute(variant, ToInputs(values, type), kTwoTokenChunks);
      test_support::ExpectC2(sample, result, type);
      EXPECT_EQ(Values(result.gradients.grad_bias)[kMasked], 0);
      EXPECT_EQ(Values(result.gradients.grad_weight[kMasked]), std::vector<double>(kWidth));

      ReferenceInputs own = values;
      own.targets[2] = kMasked;
      const Result own_result = Compute(variant, ToInputs(own, type), kTwoTokenChunks);
      EXPECT_EQ(Values(own_result.logp)[2], -kInfinity);
      test_support::ExpectC2(test_support::MakeSample("own target", own, type), own_result, type);
      // p is 0 at the mask, so that dz there is grad_logp: the only term of the masked word's grad_bias.
      if (type == at::kFloat) {
        EXPECT_EQ(Values(own_result.gradients.grad_bias)[kMasked], own.grad_logp[2]);
      }
    }
  }
}

TEST_F(SmallInputsTest, C11AFullyMaskedVocabularyIsNaN) {
  ReferenceInputs values = SmallValues();
  values.bias->assign(kWords, -kInfinity);
  for (const std::string& variant : kVariants) {
    for (const double logp : Values(Compute(variant, ToInputs(values, at::kFloat), kTwoTokenChunks).logp)) {
      EXPECT_TRUE(std::isnan(logp)) << variant;
    }
  }
}

}  // namespace
}  // namespace keval::linear_logp
