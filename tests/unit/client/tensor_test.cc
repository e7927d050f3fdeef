#include "keval/tensor.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/field_error.h"

namespace keval {
namespace {

using ::testing::ElementsAre;

std::vector<float> Floats(const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.num_elements()));
  std::memcpy(values.data(), tensor.bytes().data(), tensor.bytes().size());
  return values;
}

TEST(TensorTest, CopiesATransposedView) {
  const std::vector<float> memory = {1, 2, 3, 4, 5, 6};
  const auto copy = Tensor::Copy("t", {DType::kFloat32, {3, 2}, {1, 3}, memory.data()});
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_THAT(Floats(*copy), ElementsAre(1, 4, 2, 5, 3, 6));
}

// Case 2: one number seen N times; nothing beyond it is read (the address sanitizer would see it).
TEST(TensorTest, CopiesOneNumberSeenManyTimes) {
  const std::vector<float> one = {0.375F};
  const auto copy = Tensor::Copy("grad_logp", {DType::kFloat32, {6}, {0}, one.data()});
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_THAT(Floats(*copy), ::testing::Each(0.375F));
  EXPECT_EQ(copy->num_elements(), 6);
}

TEST(TensorTest, CopiesBackwardsSteppedAndBroadcastDimensions) {
  const std::vector<float> memory = {0, 1, 2, 3, 4, 5};
  const auto copy = Tensor::Copy("t", {DType::kFloat32, {2, 3}, {0, -2}, memory.data() + 5});
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_THAT(Floats(*copy), ElementsAre(5, 3, 1, 5, 3, 1));
}

TEST(TensorTest, CopiesEmptyAndScalar) {
  const auto empty = Tensor::Copy("t", {DType::kFloat32, {0, 8}, {}, nullptr});
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(empty->num_elements(), 0);
  const double value = 2.5;
  const auto scalar = Tensor::Copy("t", {DType::kFloat64, {}, {}, &value});
  ASSERT_TRUE(scalar.ok()) << scalar.status();
  EXPECT_EQ(scalar->At(0), 2.5);
}

TEST(TensorTest, RefusesStridesOfAnotherRankAndImpossibleShapes) {
  const float value = 1;
  EXPECT_EQ(GetFieldViolation(Tensor::Copy("hidden", {DType::kFloat32, {1}, {1, 1}, &value}).status())->field,
            "hidden");
  EXPECT_EQ(Tensor::Allocate("weight", DType::kFloat32, {std::int64_t{1} << 32, std::int64_t{1} << 32}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Tensor::Allocate("weight", DType::kFloat32, {-1}).status().code(), absl::StatusCode::kInvalidArgument);
  // Possible, but nobody has it.
  EXPECT_EQ(Tensor::Allocate("weight", DType::kFloat32, {std::int64_t{1} << 59}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// Case 7.
TEST(TensorTest, RoundsToBFloat16NearestEven) {
  EXPECT_EQ(FloatFromBFloat16(BFloat16FromFloat(1.00390625F)), 1.0F);
  EXPECT_EQ(FloatFromBFloat16(BFloat16FromFloat(1.01171875F)), 1.015625F);
  EXPECT_EQ(FloatFromBFloat16(BFloat16FromFloat(-1.01171875F)), -1.015625F);
  EXPECT_EQ(BFloat16FromFloat(std::numeric_limits<float>::max()), 0x7F80);  // Rounds up to infinity.
  EXPECT_EQ(BFloat16FromFloat(-std::numeric_limits<float>::infinity()), 0xFF80);
  EXPECT_EQ(BFloat16FromFloat(-0.0F), 0x8000);
  for (const std::uint32_t nan : {0x7F800001U, 0xFF800001U, 0x7FFFFFFFU, 0x7FC00000U}) {
    EXPECT_TRUE(std::isnan(FloatFromBFloat16(BFloat16FromFloat(std::bit_cast<float>(nan))))) << nan;
  }
}

TEST(TensorTest, ReadsFloat16) {
  EXPECT_EQ(FloatFromFloat16(0x3C00), 1.0F);
  EXPECT_EQ(FloatFromFloat16(0xC500), -5.0F);
  EXPECT_EQ(FloatFromFloat16(0x7BFF), 65504.0F);
  EXPECT_EQ(FloatFromFloat16(0x0001), 0x1p-24F);
  EXPECT_EQ(FloatFromFloat16(0xFC00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(FloatFromFloat16(0x7C01)));
}

}  // namespace
}  // namespace keval
