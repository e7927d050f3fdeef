#include "core/linear_logp/problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/field_error.h"
#include "tests/support/linear_logp_cases.h"

namespace keval::linear_logp {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kTokens = 6;
constexpr std::int64_t kWidth = 8;
constexpr std::int64_t kWords = 17;

// The specs of tests/cases/linear_logp/plain_bias.json.
TensorSpecs PlainBias(DType dtype = DType::kFloat32) {
  return {.hidden = {dtype, {kTokens, kWidth}},
          .weight = {dtype, {kWords, kWidth}},
          .bias = TensorSpec{dtype, {kWords}},
          .targets = {DType::kInt64, {kTokens}},
          .grad_logp = TensorSpec{dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32, {kTokens}}};
}

// The refusal of plain_bias changed as one entry of invalid_inputs.json says; OK where nothing refuses it.
absl::Status Refusal(const std::string& name) {
  TensorSpecs specs = PlainBias();
  std::array<std::int64_t, kTokens> targets = {1, 13, 3, 7, 16, 9};
  std::int64_t hidden_bytes = kTokens * kWidth * 4;
  if (name == "target_padding") {
    targets[0] = -100;
  } else if (name == "target_minus_three") {
    targets[0] = -3;
  } else if (name == "target_is_vocab_size") {
    targets[0] = kWords;
  } else if (name == "hidden_width") {
    specs.hidden.shape[1] = kWidth + 1;
  } else if (name == "targets_length") {
    specs.targets.shape[0] = kTokens + 1;
  } else if (name == "bias_length") {
    specs.bias->shape[0] = kWords - 1;
  } else if (name == "no_words") {
    specs.weight.shape[0] = 0;
  } else if (name == "dtype_mix") {
    specs.weight.dtype = DType::kBFloat16;
  } else if (name == "float_targets") {
    specs.targets.dtype = DType::kFloat32;
  } else if (name == "byte_count") {
    hidden_bytes -= 4;
  } else if (name == "negative_dim") {
    specs.hidden.shape[0] = -1;
  } else if (name == "overflowing_shape") {
    specs.hidden.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  } else {
    return absl::UnimplementedError("this test doesn't know that change");
  }
  const auto problem = ValidateProblem(specs, /*on_cpu=*/true);
  if (!problem.ok()) return problem.status();
  absl::Status status = ValidateByteCount("hidden", specs.hidden, hidden_bytes);
  if (!status.ok()) return status;
  return ValidateTargets(*problem, targets.data());
}

TEST(ProblemTest, EveryInvalidInputIsRefusedNamingItsField) {
  const auto inputs = test_support::LoadInvalidInputs();
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  for (const test_support::InvalidInput& input : *inputs) {
    const absl::Status status = Refusal(input.name);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << input.name << ": " << status;
    const auto violation = GetFieldViolation(status);
    ASSERT_TRUE(violation.has_value()) << input.name << ": " << status;
    EXPECT_EQ(violation->field, input.field) << input.name;
    EXPECT_FALSE(violation->value.empty()) << input.name;
    EXPECT_FALSE(violation->limit.empty()) << input.name;
  }
}

TEST(ProblemTest, AcceptsEveryOperandDtypeAndFlattensTheLeadingShape) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    TensorSpecs specs = PlainBias(dtype);
    specs.hidden.shape = {2, 3, kWidth};
    specs.targets = {DType::kInt32, {2, 3}};
    specs.grad_logp->shape = {2, 3};
    const auto problem = ValidateProblem(specs, /*on_cpu=*/true);
    ASSERT_TRUE(problem.ok()) << problem.status();
    EXPECT_EQ(problem->leading_shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(problem->num_tokens, 6);
    EXPECT_EQ(problem->hidden_size, kWidth);
    EXPECT_EQ(problem->vocab_size, kWords);
    EXPECT_EQ(problem->targets_dtype, DType::kInt32);
    EXPECT_TRUE(problem->has_bias);
    EXPECT_TRUE(problem->has_grad_logp);
    EXPECT_EQ(problem->LogpDtype(), dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32);
  }
}

TEST(ProblemTest, C4NoTokensAreAProblemLikeAnyOther) {
  TensorSpecs specs = PlainBias();
  specs.hidden.shape = {0, kWidth};
  specs.targets.shape = {0};
  specs.grad_logp->shape = {0};
  const auto problem = ValidateProblem(specs, /*on_cpu=*/true);
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(problem->num_tokens, 0);
  EXPECT_TRUE(ValidateTargets(*problem, nullptr).ok());
}

TEST(ProblemTest, Float64IsForTheCpuOnly) {
  const auto problem = ValidateProblem(PlainBias(DType::kFloat64), /*on_cpu=*/false);
  EXPECT_EQ(problem.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetFieldViolation(problem.status())->field, "hidden");
}

TEST(ProblemTest, RefusesTheRestOfTheKind) {
  struct Row {
    const char* field;
    TensorSpecs specs;
  };
  std::vector<Row> rows;
  const auto add = [&rows](const char* field, auto change) {
    TensorSpecs specs = PlainBias();
    change(&specs);
    rows.push_back({field, specs});
  };
  const std::int64_t huge = std::int64_t{1} << 31;
  add("hidden", [](TensorSpecs* s) { s->hidden.dtype = DType::kInt64; });
  add("hidden", [](TensorSpecs* s) { s->hidden.shape = {kWidth}; });
  add("hidden", [](TensorSpecs* s) { s->hidden.shape = {}; });
  add("hidden", [](TensorSpecs* s) { s->hidden.shape = s->weight.shape = {4, 0}; });
  add("hidden", [huge](TensorSpecs* s) { s->hidden.shape = {huge, 0, huge * 4}; });
  add("weight", [](TensorSpecs* s) { s->weight.shape = {kWords, kWidth, 1}; });
  add("weight", [](TensorSpecs* s) { s->weight.shape = {kWords}; });
  add("weight", [](TensorSpecs* s) { s->weight.shape = {kWords, 0}; });
  add("weight", [huge](TensorSpecs* s) { s->weight.shape = {2 * huge, 2 * huge}; });
  add("weight", [huge](TensorSpecs* s) {  // Each fits; N x V logits do not.
    s->hidden.shape = {huge, 1};
    s->weight.shape = {huge, 1};
    s->bias.reset();
    s->targets.shape = {huge};
    s->grad_logp->shape = {huge};
  });
  add("bias", [](TensorSpecs* s) { s->bias->dtype = DType::kFloat16; });
  add("bias", [](TensorSpecs* s) { s->bias->shape = {1, kWords}; });
  add("targets", [](TensorSpecs* s) { s->targets.shape = {kTokens, 1}; });
  add("targets", [](TensorSpecs* s) { s->targets.dtype = DType::kBFloat16; });
  add("grad_logp", [](TensorSpecs* s) { s->grad_logp->dtype = DType::kBFloat16; });
  add("grad_logp", [](TensorSpecs* s) { s->grad_logp->dtype = DType::kFloat64; });
  add("grad_logp", [](TensorSpecs* s) { s->grad_logp->shape = {}; });
  for (const Row& row : rows) {
    const auto problem = ValidateProblem(row.specs, /*on_cpu=*/true);
    ASSERT_EQ(problem.status().code(), absl::StatusCode::kInvalidArgument) << row.field << ": " << problem.status();
    EXPECT_EQ(GetFieldViolation(problem.status())->field, row.field) << problem.status();
  }
}

TEST(ProblemTest, ATargetIsNamedByValueIndexAndLimitAlsoInUnalignedInt32) {
  TensorSpecs specs = PlainBias();
  specs.targets.dtype = DType::kInt32;
  const auto problem = ValidateProblem(specs, /*on_cpu=*/true);
  ASSERT_TRUE(problem.ok()) << problem.status();
  const std::array<std::int32_t, kTokens> targets = {0, 16, 3, 17, -1, 9};
  std::array<std::byte, sizeof(targets) + 1> shifted{};
  std::memcpy(shifted.data() + 1, targets.data(), sizeof(targets));
  const absl::Status status = ValidateTargets(*problem, shifted.data() + 1);
  EXPECT_EQ(GetFieldViolation(status)->value, "17");
  EXPECT_EQ(GetFieldViolation(status)->limit, "in [0, 17)");
  EXPECT_THAT(std::string(status.message()), HasSubstr("at index 3"));
}

}  // namespace
}  // namespace keval::linear_logp
