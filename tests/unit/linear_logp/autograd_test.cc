// C9, and the autograd function over each variant.
#include "core/linear_logp/autograd_function.h"

#include <ATen/ops/dot.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>

#include "tests/support/operator_testing.h"

namespace keval::linear_logp {
namespace {

using test_support::Compute;
using test_support::GetVariant;
using test_support::kVariants;
using test_support::OperandTypes;
using test_support::Result;
using test_support::SameBits;
using test_support::ToInputs;
using test_support::Values;
using torch::autograd::variable_list;

constexpr std::int64_t kTokens = 5;
constexpr std::int64_t kWidth = 3;
constexpr std::int64_t kWords = 6;
const Options kOptions = {.chunk_elems = 2 * kWords};

class AutogradTest : public test_support::OperatorTest {
 protected:
  static VariantInputs Inputs(at::ScalarType type, bool with_bias = true) {
    VariantInputs inputs = ToInputs(test_support::SeededValues(kTokens, kWidth, kWords, with_bias, 9), type);
    inputs.hidden.set_requires_grad(true);
    inputs.weight.set_requires_grad(true);
    if (with_bias) inputs.bias.set_requires_grad(true);
    return inputs;
  }
};

at::Tensor Logp(const std::string& variant, const VariantInputs& inputs, const Options& options = kOptions) {
  return LinearLogp(GetVariant(variant), options, inputs.hidden, inputs.weight, inputs.bias, inputs.targets);
}

variable_list Operands(const VariantInputs& inputs) {
  variable_list operands = {inputs.hidden, inputs.weight};
  if (inputs.bias.defined()) operands.push_back(inputs.bias);
  return operands;
}

TEST_F(AutogradTest, BackwardIsTheVariantsOwnBitForBit) {
  for (const bool with_bias : {true, false}) {
    for (const at::ScalarType type : OperandTypes()) {
      for (const std::string& variant : kVariants) {
        const VariantInputs inputs = Inputs(type, with_bias);
        const at::Tensor logp = Logp(variant, inputs);
        const variable_list got = torch::autograd::grad({logp}, Operands(inputs), {inputs.grad_logp});
        const Result want = Compute(variant, inputs, kOptions);
        EXPECT_TRUE(SameBits(logp.detach(), want.logp)) << variant;
        EXPECT_TRUE(SameBits(got[0], want.gradients.grad_hidden)) << variant;
        EXPECT_TRUE(SameBits(got[1], want.gradients.grad_weight)) << variant;
        if (with_bias) {
          EXPECT_TRUE(SameBits(got[2], want.gradients.grad_bias)) << variant;
        }
      }
    }
  }
}

TEST_F(AutogradTest, C7AnyLeadingShapeAndAScalarUpstream) {
  for (const at::ScalarType type : OperandTypes()) {
    const VariantInputs inputs = Inputs(type);
    VariantInputs ones = inputs;
    ones.grad_logp = at::ones_like(inputs.grad_logp);
    for (const std::string& variant : kVariants) {
      SCOPED_TRACE(::testing::Message() << variant << ' ' << c10::toString(type));
      VariantInputs shaped = inputs;
      shaped.hidden = inputs.hidden.detach().clone().reshape({1, kTokens, 1, kWidth}).set_requires_grad(true);
      shaped.targets = inputs.targets.reshape({1, kTokens, 1}).to(at::kInt);
      const at::Tensor logp = Logp(variant, shaped);
      EXPECT_EQ(logp.sizes(), (std::vector<std::int64_t>{1, kTokens, 1}));
      // sum's backward hands down one number with stride 0.
      const variable_list got = torch::autograd::grad({logp.sum()}, {shaped.hidden, shaped.weight, shaped.bias});
      const Result want = Compute(variant, ones, kOptions);
      EXPECT_TRUE(SameBits(logp.detach().reshape({kTokens}), want.logp));
      EXPECT_TRUE(SameBits(got[0].reshape({kTokens, kWidth}), want.gradients.grad_hidden));
      EXPECT_TRUE(SameBits(got[1], want.gradients.grad_weight));
      EXPECT_TRUE(SameBits(got[2], want.gradients.grad_bias));
    }
  }
}

TEST_F(AutogradTest, OnlyWhatIsNeededIsComputed) {
  for (const bool with_bias : {true, false}) {
    VariantInputs inputs = Inputs(at::kFloat, with_bias);
    inputs.weight = inputs.weight.detach();
    const at::Tensor logp = Logp(test_support::kBase, inputs);
    std::map<std::string, int> ops =
        test_support::CountOps([&] { torch::autograd::grad({logp}, {inputs.hidden}, {inputs.grad_logp}); });
    EXPECT_EQ(ops["aten::add_"], 0) << "a weight gradient was made that nobody needs";
    EXPECT_EQ(ops["aten::mm"], 2 * 3);
  }
}

TEST_F(AutogradTest, P7AutocastReachesTheBackwardAndDoesNotLeak) {
  Options options = kOptions;
  options.autocast = Autocast::kBFloat16;
  const VariantInputs inputs = Inputs(at::kFloat);
  const at::Tensor logp = Logp(test_support::kCandidate, inputs, options);
  const variable_list got = torch::autograd::grad({logp}, Operands(inputs), {inputs.grad_logp});
  const Result want = Compute(test_support::kBase, inputs, options);
  EXPECT_TRUE(SameBits(got[1], want.gradients.grad_weight));
}

TEST_F(AutogradTest, AStopReachesTheCaller) {
  const VariantInputs inputs = Inputs(at::kFloat);
  const auto stop = [] { return absl::CancelledError("stop"); };
  EXPECT_THROW(LinearLogp(GetVariant(test_support::kBase), kOptions, inputs.hidden, inputs.weight, inputs.bias,
                          inputs.targets, stop),
               Stopped);

  bool stopping = false;
  const auto stop_later = [&stopping] { return stopping ? absl::CancelledError("stop") : absl::OkStatus(); };
  const at::Tensor logp = LinearLogp(GetVariant(test_support::kBase), kOptions, inputs.hidden, inputs.weight,
                                     inputs.bias, inputs.targets, stop_later);
  stopping = true;
  EXPECT_THROW(torch::autograd::grad({logp}, {inputs.hidden}, {inputs.grad_logp}), Stopped);
}

// d f / d operand by central differences, where f is a scalar of detached copies of `operands`.
std::vector<double> FiniteDifferences(const std::function<double(const variable_list&)>& f,
                                      const variable_list& operands, std::size_t which) {
  constexpr double kStep = 1e-5;
  std::vector<double> slopes;
  variable_list copies;
  for (const at::Tensor& operand : operands) copies.push_back(operand.detach().clone().set_requires_grad(true));
  const at::Tensor flat = copies[which].detach().view({-1});
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    flat[i].add_(kStep);
    const double above = f(copies);
    flat[i].sub_(2 * kStep);
    const double below = f(copies);
    flat[i].add_(kStep);
    slopes.push_back((above - below) / (2 * kStep));
  }
  return slopes;
}

void ExpectNear(const at::Tensor& got, const std::vector<double>& want, const std::string& what) {
  const std::vector<double> values = Values(got);
  ASSERT_EQ(values.size(), want.size()) << what;
  for (std::size_t i = 0; i < want.size(); ++i) {
    // Central differences of step 1e-5 in float64: 1e-10 of truncation, 1e-11 of cancellation.
    EXPECT_NEAR(values[i], want[i], 1e-7 * std::max(1.0, std::abs(want[i]))) << what << "[" << i << "]";
  }
}

// The gradient of `scalar` in each operand is its slope there.
void ExpectGradients(const std::function<at::Tensor(const variable_list&)>& scalar, const variable_list& operands,
                     const std::string& variant) {
  const variable_list got = torch::autograd::grad({scalar(operands)}, operands);
  const auto value = [&scalar](const variable_list& at_point) { return scalar(at_point).item<double>(); };
  for (std::size_t i = 0; i < operands.size(); ++i) {
    ExpectNear(got[i], FiniteDifferences(value, operands, i), variant + " operand " + std::to_string(i));
  }
}

// `inputs` with hidden, weight and, where there is one, bias from `operands`.
VariantInputs AtPoint(VariantInputs inputs, const variable_list& operands) {
  inputs.hidden = operands[0];
  inputs.weight = operands[1];
  if (inputs.bias.defined()) inputs.bias = operands[2];
  return inputs;
}

TEST_F(AutogradTest, C9FirstGradientsPassFiniteDifferences) {
  if (test_support::TestDevice().cuda) GTEST_SKIP() << "float64 is computed on a CPU only";
  for (const bool with_bias : {true, false}) {
    const VariantInputs inputs = Inputs(at::kDouble, with_bias);
    for (const std::string& variant : kVariants) {
      const auto scalar = [&](const variable_list& operands) {
        return at::dot(Logp(variant, AtPoint(inputs, operands)), inputs.grad_logp);
      };
      ExpectGradients(scalar, Operands(inputs), variant);
    }
  }
}

TEST_F(AutogradTest, C9SecondGradientsPassFiniteDifferences) {
  if (test_support::TestDevice().cuda) GTEST_SKIP() << "float64 is computed on a CPU only";
  for (const bool with_bias : {true, false}) {
    const VariantInputs inputs = Inputs(at::kDouble, with_bias);
    for (const std::string& variant : kVariants) {
      // The first gradients, weighted by fixed numbers, as a function of hidden, weight, bias and the upstream.
      const auto scalar = [&](const variable_list& operands) {
        const VariantInputs at_point = AtPoint(inputs, operands);
        const variable_list first = torch::autograd::grad({Logp(variant, at_point)}, Operands(at_point),
                                                          {operands.back()}, true, /*create_graph=*/true);
        at::Tensor total = at::sum(at::mul(first[0], inputs.hidden.detach()));
        total = total.add(at::sum(at::mul(first[1], first[1])));
        if (with_bias) total = total.add(at::sum(at::mul(first[2], inputs.bias.detach())));
        return total;
      };
      variable_list operands = Operands(inputs);
      operands.push_back(inputs.grad_logp.detach().clone().set_requires_grad(true));
      ExpectGradients(scalar, operands, variant);
    }
  }
}

TEST_F(AutogradTest, C9CreateGraphGivesTheSameFirstGradients) {
  for (const at::ScalarType type : OperandTypes()) {
    const VariantInputs inputs = Inputs(type);
    const auto gradients = [&](bool create_graph) {
      return torch::autograd::grad({Logp(test_support::kCandidate, inputs)}, Operands(inputs), {inputs.grad_logp}, true,
                                   create_graph);
    };
    const variable_list plain = gradients(false);
    const variable_list graphed = gradients(true);
    const double tolerance = type == at::kBFloat16 ? 0x1p-7 : type == at::kHalf ? 0x1p-10 : 1e-6;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(graphed[i].scalar_type(), type);
      EXPECT_TRUE(graphed[i].requires_grad());
      const std::vector<double> a = Values(plain[i]);
      const std::vector<double> b = Values(graphed[i].detach());
      for (std::size_t j = 0; j < a.size(); ++j) {
        EXPECT_NEAR(a[j], b[j], tolerance * std::max(1.0, std::abs(a[j]))) << c10::toString(type);
      }
    }
  }
}

}  // namespace
}  // namespace keval::linear_logp
