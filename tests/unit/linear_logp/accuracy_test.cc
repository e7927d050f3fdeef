// C1, C2, C8, C14: the variants against the float64 reference, and the two production paths against each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/operator_testing.h"

namespace keval::linear_logp {
namespace {

using test_support::CaseSamples;
using test_support::Compute;
using test_support::kBase;
using test_support::kCandidate;
using test_support::kVariants;
using test_support::LargerSample;
using test_support::OperandTypes;
using test_support::Result;
using test_support::Sample;
using test_support::ToInputs;
using test_support::Values;

class AccuracyTest : public test_support::OperatorTest {};

// Chunks of one token, of two, and of all.
std::vector<std::int64_t> ChunkElems(const Sample& sample) {
  return {1, 2 * sample.values.vocab_size, Options{}.chunk_elems};
}

TEST_F(AccuracyTest, C2C8C14EveryCaseInEveryDtypeAndChunking) {
  for (const at::ScalarType type : OperandTypes()) {
    for (const Sample& sample : CaseSamples(type)) {
      const VariantInputs inputs = ToInputs(sample.values, type);
      for (const std::string& variant : kVariants) {
        for (const std::int64_t chunk_elems : ChunkElems(sample)) {
          for (const GradDtype grad_dtype : {GradDtype::kInput, GradDtype::kFloat32}) {
            SCOPED_TRACE(::testing::Message() << sample.name << ' ' << c10::toString(type) << ' ' << variant
                                              << " chunk_elems " << chunk_elems);
            test_support::ExpectC2(
                sample, Compute(variant, inputs, {.grad_dtype = grad_dtype, .chunk_elems = chunk_elems}), type);
          }
        }
      }
    }
  }
}

TEST_F(AccuracyTest, C2C14LargerInputsInEveryDtypeAndChunking) {
  const Sample& sample = LargerSample();
  for (const at::ScalarType type : OperandTypes()) {
    const VariantInputs inputs = ToInputs(sample.values, type);
    for (const std::string& variant : kVariants) {
      for (const std::int64_t chunk_elems : {std::int64_t{150001}, std::int64_t{500000}, Options{}.chunk_elems}) {
        SCOPED_TRACE(::testing::Message() << c10::toString(type) << ' ' << variant << " chunk_elems " << chunk_elems);
        test_support::ExpectC2(sample, Compute(variant, inputs, {.chunk_elems = chunk_elems}), type);
      }
    }
  }
}

TEST_F(AccuracyTest, C2PlainRelativeErrorsAreSmallOnWellScaledInputs) {
  const Sample& sample = LargerSample();
  const VariantInputs inputs = ToInputs(sample.values, at::kFloat);
  for (const std::string& variant : kVariants) {
    const Result result = Compute(variant, inputs);
    const std::vector<double> got = Values(result.gradients.grad_weight);
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      error += std::pow(got[i] - sample.want.grad_weight[i], 2);
      norm += std::pow(sample.want.grad_weight[i], 2);
    }
    EXPECT_LE(std::sqrt(error / norm), 5e-6) << variant;
  }
}

TEST_F(AccuracyTest, C14NearlyCertainTargetKeepsEachTokensGradient) {
  for (const at::ScalarType type : OperandTypes()) {
    const auto numeric_case = test_support::LoadLinearLogpCase("reports/nearly_certain_target.json");
    ASSERT_TRUE(numeric_case.ok()) << numeric_case.status();
    const Sample sample = test_support::MakeSample("nearly certain", test_support::ValuesOf(*numeric_case), type);
    const auto width = static_cast<std::size_t>(sample.values.hidden_size);
    const double limit = type == at::kBFloat16 || type == at::kHalf ? 1e-2 : 1e-3;
    for (const std::string& variant : kVariants) {
      const std::vector<double> got = Values(Compute(variant, ToInputs(sample.values, type)).gradients.grad_hidden);
      for (std::size_t token = 0; token < sample.want.logp.size(); ++token) {
        double error = 0;
        double norm = 0;
        for (std::size_t i = token * width; i < (token + 1) * width; ++i) {
          error += std::pow(got[i] - sample.want.grad_hidden[i], 2);
          norm += std::pow(sample.want.grad_hidden[i], 2);
        }
        EXPECT_LE(std::sqrt(error), limit * std::sqrt(norm))
            << variant << ' ' << c10::toString(type) << " token " << token;
      }
    }
  }
}

// 2^(exponent - bits) of the larger magnitude: one step of a 16-bit result.
double Ulp(double a, double b, at::ScalarType type) {
  const double larger = std::max(std::abs(a), std::abs(b));
  if (larger == 0) return 0;
  const int significant_bits = type == at::kHalf ? 11 : 8;
  const int smallest_exponent = type == at::kHalf ? -24 : -133;  // Of a subnormal step.
  return std::exp2(std::max(std::ilogb(larger) - (significant_bits - 1), smallest_exponent));
}

void ExpectC1(const at::Tensor& base, const at::Tensor& candidate) {
  const std::vector<double> a = Values(base);
  const std::vector<double> b = Values(candidate);
  ASSERT_EQ(a.size(), b.size());
  const at::ScalarType type = base.scalar_type();
  double largest = 0;
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i]));
    error += std::pow(b[i] - a[i], 2);
    norm += std::pow(a[i], 2);
  }
  const double tolerance = 1e-5 * std::max(1.0, largest);
  const bool narrow = type == at::kBFloat16 || type == at::kHalf;
  if (!narrow) {
    EXPECT_LE(std::sqrt(error), 1e-6 * std::sqrt(norm));
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double limit = narrow ? Ulp(a[i], b[i], type) + 1e-6 * largest : tolerance + tolerance * std::abs(a[i]);
    ASSERT_LE(std::abs(b[i] - a[i]), limit) << "element " << i;
  }
}

TEST_F(AccuracyTest, C1BothPathsAgreeBeforeAndAfterTheFinalCast) {
  for (const at::ScalarType type : OperandTypes()) {
    const VariantInputs inputs = ToInputs(LargerSample().values, type);
    for (const GradDtype grad_dtype : {GradDtype::kInput, GradDtype::kFloat32}) {
      for (const std::int64_t chunk_elems : {std::int64_t{150000}, std::int64_t{500000}}) {
        SCOPED_TRACE(::testing::Message() << c10::toString(type) << " chunk_elems " << chunk_elems);
        const Options options = {.grad_dtype = grad_dtype, .chunk_elems = chunk_elems};
        const Result base = Compute(kBase, inputs, options);
        const Result candidate = Compute(kCandidate, inputs, options);
        ExpectC1(base.gradients.grad_hidden, candidate.gradients.grad_hidden);
        ExpectC1(base.gradients.grad_weight, candidate.gradients.grad_weight);
        ExpectC1(base.gradients.grad_bias, candidate.gradients.grad_bias);
        EXPECT_TRUE(test_support::SameBits(base.logp, candidate.logp));
      }
    }
  }
}

}  // namespace
}  // namespace keval::linear_logp
