// P1 to P9 and C13: what runs, shown by operators, allocations and the dispatch that the code reports.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "core/linear_logp/autocast.h"
#include "tests/support/operator_testing.h"

namespace keval::linear_logp {
namespace {

using test_support::Allocations;
using test_support::Compute;
using test_support::CountOps;
using test_support::GetVariant;
using test_support::kBase;
using test_support::kCandidate;
using test_support::kVariants;
using test_support::OperandTypes;
using test_support::Result;
using test_support::SameBits;
using test_support::ToInputs;

constexpr std::int64_t kTokens = 10;
constexpr std::int64_t kWidth = 240;
constexpr std::int64_t kWords = 400;
constexpr std::int64_t kChunks = 4;  // 3, 3, 3 and 1 tokens.
const Options kOptions = {.chunk_elems = 3 * kWords + 7};

class PathsTest : public test_support::OperatorTest {
 protected:
  static VariantInputs Inputs(at::ScalarType type, bool with_bias = true) {
    return ToInputs(test_support::SeededValues(kTokens, kWidth, kWords, with_bias, 5), type);
  }

  static std::map<std::string, int> BackwardOps(const std::string& variant, const VariantInputs& inputs,
                                                const Options& options = kOptions, Want want = {}) {
    const AutocastScope autocast(inputs.hidden.device().type(), options.autocast);
    return CountOps([&] { GetVariant(variant).Backward(inputs, options, want, nullptr, nullptr); });
  }

  static std::vector<std::int64_t> BackwardAllocations(const std::string& variant, const VariantInputs& inputs,
                                                       Want want) {
    const AutocastScope autocast(inputs.hidden.device().type(), Autocast::kNone);
    const auto backward = [&] { GetVariant(variant).Backward(inputs, kOptions, want, nullptr, nullptr); };
    backward();  // The first on a GPU makes cuBLAS's workspace.
    return Allocations(backward);
  }
};

TEST_F(PathsTest, P1P5P6OperatorsAChunk) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const bool with_bias : {true, false}) {
      const VariantInputs inputs = Inputs(type, with_bias);
      std::map<std::string, int> base = BackwardOps(kBase, inputs);
      std::map<std::string, int> candidate = BackwardOps(kCandidate, inputs);
      EXPECT_EQ(base["aten::mm"], 3 * kChunks) << c10::toString(type);
      EXPECT_EQ(base["aten::add_"], kChunks);
      EXPECT_EQ(base["aten::addmm_"], 0);
      EXPECT_EQ(candidate["aten::mm"], 2 * kChunks);
      EXPECT_EQ(candidate["aten::add_"], 0);
      EXPECT_EQ(candidate["aten::addmm_"], kChunks);
    }
  }
}

TEST_F(PathsTest, P3SoftmaxIsRecomputedFromLogits) {
  std::map<std::string, int> ops = BackwardOps(kBase, Inputs(at::kFloat));
  EXPECT_EQ(ops["aten::softmax"], kChunks);
  EXPECT_EQ(ops["aten::neg_"], kChunks);
  EXPECT_EQ(ops["aten::mul_"], kChunks);
  EXPECT_EQ(ops["aten::logsumexp"], 0);
}

TEST_F(PathsTest, P4TheTableIsZeroedOnceAndNotAssigned) {
  for (const char* variant : {kBase, kCandidate}) {
    std::map<std::string, int> with = BackwardOps(variant, Inputs(at::kFloat), kOptions, {true, true, false});
    std::map<std::string, int> without = BackwardOps(variant, Inputs(at::kFloat), kOptions, {true, false, false});
    EXPECT_EQ(with["aten::zeros"], 1) << variant;
    EXPECT_EQ(without["aten::zeros"], 0) << variant;
    EXPECT_EQ(with["aten::copy_"], without["aten::copy_"]) << variant;  // Those of grad_hidden alone.
  }
}

TEST_F(PathsTest, P7UnderAutocastTheCandidateIsBaseBitForBitAndOpForOp) {
  for (const Autocast autocast : {Autocast::kBFloat16, Autocast::kFloat16}) {
    for (const at::ScalarType type : OperandTypes()) {
      const VariantInputs inputs = Inputs(type);
      Options options = kOptions;
      options.autocast = autocast;
      SCOPED_TRACE(::testing::Message() << c10::toString(type) << " autocast " << static_cast<int>(autocast));
      const std::map<std::string, int> ops = BackwardOps(kBase, inputs, options);
      EXPECT_EQ(ops, BackwardOps(kCandidate, inputs, options));
      EXPECT_EQ(ops.count("aten::addmm_"), 0U);
      EXPECT_EQ(ops.at("aten::add_"), kChunks);
      const Result base = Compute(kBase, inputs, options);
      const Result candidate = Compute(kCandidate, inputs, options);
      EXPECT_TRUE(SameBits(base.logp, candidate.logp));
      EXPECT_TRUE(SameBits(base.gradients.grad_hidden, candidate.gradients.grad_hidden));
      EXPECT_TRUE(SameBits(base.gradients.grad_weight, candidate.gradients.grad_weight));
      EXPECT_TRUE(SameBits(base.gradients.grad_bias, candidate.gradients.grad_bias));
      EXPECT_EQ(candidate.dispatch.path, "matmul, then add");
      EXPECT_TRUE(candidate.dispatch.fallback);
      EXPECT_NE(candidate.dispatch.reason.find("fallback"), std::string::npos) << candidate.dispatch.reason;
    }
  }
}

TEST_F(PathsTest, P7AutocastReallyMultipliesInSixteenBits) {
  const VariantInputs inputs = Inputs(at::kFloat);
  const Result plain = Compute(kBase, inputs, kOptions);
  for (const Autocast autocast : {Autocast::kBFloat16, Autocast::kFloat16}) {
    Options options = kOptions;
    options.autocast = autocast;
    const Result cast = Compute(kBase, inputs, options);
    EXPECT_FALSE(SameBits(plain.logp, cast.logp));
    const std::vector<double> want = test_support::Values(plain.logp);
    const std::vector<double> got = test_support::Values(cast.logp);
    const double limit = (autocast == Autocast::kBFloat16 ? 0x1p-7 : 0x1p-10) * 8;  // Logits stay below 8 here.
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], limit);
  }
}

TEST_F(PathsTest, P6Float64FallsBackByName) {
  if (test_support::TestDevice().cuda) GTEST_SKIP() << "float64 is computed on a CPU only";
  const VariantInputs inputs = Inputs(at::kDouble);
  const Result base = Compute(kBase, inputs, kOptions);
  const Result candidate = Compute(kCandidate, inputs, kOptions);
  EXPECT_TRUE(SameBits(base.gradients.grad_weight, candidate.gradients.grad_weight));
  EXPECT_TRUE(candidate.dispatch.fallback);
  EXPECT_NE(candidate.dispatch.reason.find("isn't float32"), std::string::npos) << candidate.dispatch.reason;
}

TEST_F(PathsTest, C13TheDispatchNamesWhatRan) {
  const VariantInputs inputs = Inputs(at::kBFloat16);
  for (const auto& [variant, path] :
       std::map<std::string, std::string>{{kBase, "matmul, then add"}, {kCandidate, "addmm_ in place"}}) {
    const Dispatch dispatch = Compute(variant, inputs, kOptions).dispatch;
    EXPECT_EQ(dispatch.variant, variant);
    EXPECT_EQ(dispatch.path, path);
    EXPECT_FALSE(dispatch.fallback);
    EXPECT_EQ(dispatch.chunk_tokens, 3);
    EXPECT_EQ(dispatch.chunks, kChunks);
  }
  const Dispatch unwanted = Compute(kCandidate, inputs, kOptions, {true, false, true}).dispatch;
  EXPECT_EQ(unwanted.path, "no weight gradient");
}

TEST_F(PathsTest, P8AnUnwantedWeightGradientIsNeitherAllocatedNorCastFor) {
  // Nothing else is as large as a table: a chunk has 3 tokens.
  constexpr std::int64_t kTableBytes = kWords * kWidth * 4;
  for (const char* variant : {kBase, kCandidate}) {
    const auto tables = [&](at::ScalarType type, Want want) {
      const std::vector<std::int64_t> sizes = BackwardAllocations(variant, Inputs(type), want);
      return std::count_if(sizes.begin(), sizes.end(), [](std::int64_t size) { return size >= kTableBytes; });
    };
    EXPECT_EQ(tables(at::kFloat, {true, false, true}), 0) << variant;
    EXPECT_GE(tables(at::kFloat, {true, true, true}), 1) << variant;
    // P2's upcast of weight, which the logits need, and no other.
    EXPECT_EQ(tables(at::kBFloat16, {true, false, true}), 1) << variant;
    EXPECT_GE(tables(at::kBFloat16, {true, true, true}), 2) << variant;

    std::map<std::string, int> with = BackwardOps(variant, Inputs(at::kBFloat16), kOptions, {true, true, true});
    std::map<std::string, int> without = BackwardOps(variant, Inputs(at::kBFloat16), kOptions, {true, false, true});
    // The one cast more is the table's to the result's dtype, not one of hidden.
    EXPECT_EQ(with["aten::_to_copy"], without["aten::_to_copy"] + 1) << variant;
    EXPECT_EQ(without["aten::zeros"], 1) << variant;  // The bias's.
    EXPECT_EQ(without["aten::addmm_"] + without["aten::add_"], 0) << variant;
    EXPECT_EQ(without["aten::mm"], 2 * kChunks) << variant;
  }
}

TEST_F(PathsTest, P8UnwantedHiddenAndBiasGradientsCostNothing) {
  for (const std::string& variant : kVariants) {
    std::map<std::string, int> all = BackwardOps(variant, Inputs(at::kFloat));
    std::map<std::string, int> no_hidden = BackwardOps(variant, Inputs(at::kFloat), kOptions, {false, true, true});
    std::map<std::string, int> no_bias = BackwardOps(variant, Inputs(at::kFloat), kOptions, {true, true, false});
    EXPECT_LT(no_hidden["aten::mm"], all["aten::mm"]) << variant;
    EXPECT_GT(all["aten::sum"], 0) << variant;
    EXPECT_EQ(no_bias["aten::sum"], 0) << variant;
    std::map<std::string, int> none = BackwardOps(variant, Inputs(at::kFloat), kOptions, {false, false, false});
    EXPECT_EQ(none["aten::mm"], 0) << variant;
  }
}

TEST_F(PathsTest, P9GradientsHaveTheInputsDtypeOrFloat32OnRequest) {
  for (const at::ScalarType type : OperandTypes()) {
    for (const std::string& variant : kVariants) {
      Options options = kOptions;
      for (const GradDtype grad_dtype : {GradDtype::kInput, GradDtype::kFloat32}) {
        options.grad_dtype = grad_dtype;
        const at::ScalarType want = grad_dtype == GradDtype::kInput ? type
                                    : type == at::kDouble           ? at::kDouble
                                                                    : at::kFloat;
        const Result result = Compute(variant, Inputs(type), options);
        EXPECT_EQ(result.gradients.grad_hidden.scalar_type(), want) << variant;
        EXPECT_EQ(result.gradients.grad_weight.scalar_type(), want) << variant;
        EXPECT_EQ(result.gradients.grad_bias.scalar_type(), want) << variant;
        EXPECT_EQ(result.logp.scalar_type(), type == at::kDouble ? at::kDouble : at::kFloat);
      }
    }
  }
}

TEST_F(PathsTest, C3TwentyRepeatsAreBitIdentical) {
  at::set_num_threads(2);  // Where a reduction might be split.
  for (const at::ScalarType type : OperandTypes()) {
    const VariantInputs inputs = ToInputs(test_support::SeededValues(64, 64, 700, true, 8), type);
    for (const std::string& variant : kVariants) {
      const Options options = {.chunk_elems = 22400};
      const Result first = Compute(variant, inputs, options);
      for (int repeat = 1; repeat < 20; ++repeat) {
        const Result again = Compute(variant, inputs, options);
        ASSERT_TRUE(SameBits(first.logp, again.logp)) << variant << " repeat " << repeat;
        ASSERT_TRUE(SameBits(first.gradients.grad_hidden, again.gradients.grad_hidden)) << variant;
        ASSERT_TRUE(SameBits(first.gradients.grad_weight, again.gradients.grad_weight)) << variant;
        ASSERT_TRUE(SameBits(first.gradients.grad_bias, again.gradients.grad_bias)) << variant;
      }
    }
  }
}

using PathsDeathTest = PathsTest;

TEST_F(PathsDeathTest, C3AnotherProcessGivesTheSameBits) {
  // In this style the statement runs in a fresh process, which starts this program again.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto digests = [] {
    std::string all;
    for (const at::ScalarType type : OperandTypes()) {
      const VariantInputs inputs = ToInputs(test_support::SeededValues(120, 96, 1500, true, 8), type);
      for (const std::string& variant : kVariants) {
        all += test_support::Digest(Compute(variant, inputs, {.chunk_elems = 50000})) + ";";
      }
    }
    return all;
  };
  EXPECT_EXIT(
      {
        std::fputs(digests().c_str(), stderr);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), digests());
}

TEST_F(PathsTest, ACallStopsBetweenChunks) {
  for (const char* variant : {kBase, kCandidate}) {
    int asked = 0;
    const ContinueCheck check = [&asked] { return ++asked == 2 ? absl::CancelledError("enough") : absl::OkStatus(); };
    std::map<std::string, int> ops = CountOps(
        [&] { EXPECT_THROW(GetVariant(variant).Backward(Inputs(at::kFloat), kOptions, {}, check, nullptr), Stopped); });
    EXPECT_EQ(asked, 2) << variant;
    EXPECT_EQ(ops["aten::softmax"], 1) << variant;
  }
}

}  // namespace
}  // namespace keval::linear_logp
