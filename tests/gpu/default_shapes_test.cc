// C1, C2, C3 and C14's rows at the shapes that a job measures, in each dtype.
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/number.h"
#include "tests/support/device_reference.h"

namespace keval::linear_logp {
namespace {

using test_support::Compute;
using test_support::DeviceReference;
using test_support::ExpectDeviceC2;
using test_support::Result;

struct Shape {
  std::int64_t tokens, width, words;
  bool bias;

  std::string Name() const { return absl::StrCat(tokens, "x", width, "x", words, bias ? "_bias" : "_no_bias"); }
  friend void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.Name(); }
};

class DefaultShapesTest : public test_support::OperatorTest, public ::testing::WithParamInterface<Shape> {};

// Leaves logp's figures in the test's result under `name`.
void ExpectC2(const std::string& name, const DeviceReference& want, const Result& got) {
  const test_support::LogpAccuracy logp =
      test_support::ExpectDeviceLogp(got.logp, want.logp, want.max_abs_logit, want.grad_hidden.size(1));
  ::testing::Test::RecordProperty(
      absl::StrCat("logp_", name),
      absl::StrCat("rms ", DoubleText(logp.rms), ", largest ", DoubleText(logp.largest), " of ", logp.tokens,
                   " tokens, C2's limit ", DoubleText(logp.limit), ", ", logp.beyond, " beyond ",
                   DoubleText(logp.limit * logp.growth), ", none may be beyond ", DoubleText(logp.hard_limit)));
  ExpectDeviceC2("grad_hidden", got.gradients.grad_hidden, want.grad_hidden, want.summed_hidden, want.max_abs_logit);
  ExpectDeviceC2("grad_weight", got.gradients.grad_weight, want.grad_weight, want.summed_weight, want.max_abs_logit);
  if (got.gradients.grad_bias.defined()) {
    ExpectDeviceC2("grad_bias", got.gradients.grad_bias, want.grad_bias, want.summed_bias, want.max_abs_logit);
  }
}

// ‖candidate − base‖ / ‖base‖ of float32 gradients.
double Distance(const at::Tensor& base, const at::Tensor& candidate) {
  return (candidate - base).norm().item<double>() / base.norm().item<double>();
}

TEST_P(DefaultShapesTest, C1C2BothPathsInEveryDtype) {
  const Shape shape = GetParam();
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat}) {
    const std::string dtype = c10::toString(type);
    SCOPED_TRACE(dtype);
    const VariantInputs inputs =
        test_support::RandomInputs(shape.tokens, shape.width, shape.words, shape.bias, type, 2026);
    const DeviceReference want = test_support::ComputeDeviceReference(inputs);
    const Options float32 = {.grad_dtype = GradDtype::kFloat32};
    const Result base = Compute(test_support::kBase, inputs, float32);
    ExpectC2(absl::StrCat(dtype, "_base"), want, base);
    {
      const Result candidate = Compute(test_support::kCandidate, inputs, float32);
      ExpectC2(absl::StrCat(dtype, "_candidate"), want, candidate);
      EXPECT_EQ(candidate.dispatch.path, "addmm_ in place");
      EXPECT_TRUE(test_support::SameBits(base.logp, candidate.logp));
      EXPECT_LE(Distance(base.gradients.grad_hidden, candidate.gradients.grad_hidden), 1e-6);
      EXPECT_LE(Distance(base.gradients.grad_weight, candidate.gradients.grad_weight), 1e-6);
    }
    ExpectC2(absl::StrCat(dtype, "_candidate_own_dtype"), want, Compute(test_support::kCandidate, inputs));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DefaultShapesTest,
                         ::testing::Values(Shape{4096, 2048, 32768, true}, Shape{4096, 2048, 50257, true},
                                           Shape{4096, 2048, 131072, true}, Shape{8192, 4096, 151936, true},
                                           Shape{4096, 2048, 32768, false}, Shape{4096, 2048, 50257, false}),
                         [](const auto& info) { return info.param.Name(); });

using RepeatTest = test_support::OperatorTest;

TEST_F(RepeatTest, C3TwentyRepeatsAtTheHeadlineShape) {
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    const VariantInputs inputs = test_support::RandomInputs(4096, 2048, 32768, true, type, 3);
    for (const char* variant : {test_support::kBase, test_support::kCandidate}) {
      const Result first = Compute(variant, inputs);
      for (int repeat = 1; repeat < 20; ++repeat) {
        const Result again = Compute(variant, inputs);
        // No NaN is in these, so equal numbers are equal bits but for the sign of a zero.
        ASSERT_TRUE(first.logp.equal(again.logp)) << variant << " repeat " << repeat;
        ASSERT_TRUE(first.gradients.grad_hidden.equal(again.gradients.grad_hidden)) << variant;
        ASSERT_TRUE(first.gradients.grad_weight.equal(again.gradients.grad_weight)) << variant;
        ASSERT_TRUE(first.gradients.grad_bias.equal(again.gradients.grad_bias)) << variant;
      }
    }
  }
}

// In a child: one line for each dtype and production path.
[[noreturn]] void PrintDigestsAndExit() {
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    const VariantInputs inputs = test_support::RandomInputs(4096, 2048, 32768, true, type, 3);
    for (const char* variant : {test_support::kBase, test_support::kCandidate}) {
      const std::string digest = test_support::Digest(Compute(variant, inputs));
      std::fputs(absl::StrCat("digest ", c10::toString(type), " ", variant, " ", digest, "\n").c_str(), stderr);
    }
  }
  std::_Exit(0);
}

// The lines that PrintDigestsAndExit wrote, whatever a library may have written beside them.
std::vector<std::string> DigestLines(const std::string& text) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "digest ")) lines.emplace_back(line);
  }
  return lines;
}

using RepeatDeathTest = test_support::OperatorTest;

TEST_F(RepeatDeathTest, C3TwoFreshProcessesGiveTheSameBitsAtTheHeadlineShape) {
  // In this style each statement runs in a fresh process, which starts this program again.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::string first;
  std::string second;
  const auto into = [](std::string* text) {
    return ::testing::Truly([text](const std::string& written) {
      *text = written;
      return true;
    });
  };
  EXPECT_EXIT(PrintDigestsAndExit(), ::testing::ExitedWithCode(0), into(&first));
  EXPECT_EXIT(PrintDigestsAndExit(), ::testing::ExitedWithCode(0), into(&second));
  ASSERT_EQ(DigestLines(first).size(), 4U) << first;
  EXPECT_EQ(DigestLines(first), DigestLines(second));
}

}  // namespace
}  // namespace keval::linear_logp
