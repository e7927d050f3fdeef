#include "base/shape.h"

#include <gtest/gtest.h>

#include "base/field_error.h"

namespace keval {
namespace {

TEST(ShapeTest, CountsElementsAndBytes) {
  EXPECT_EQ(*NumElements("hidden", {2, 3, 4}), 24);
  EXPECT_EQ(*NumElements("hidden", {0, 8}), 0);
  EXPECT_EQ(*NumElements("hidden", {}), 1);
  EXPECT_EQ(*NumBytes("hidden", {DType::kBFloat16, {3, 5}}), 30);
}

TEST(ShapeTest, RefusesWhatOverflowsEvenBesideAZero) {
  const std::int64_t two_to_40 = std::int64_t{1} << 40;
  const std::int64_t two_to_32 = std::int64_t{1} << 32;
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{two_to_40, two_to_40}, {two_to_32, two_to_32}, {two_to_40, 0, two_to_40}, {-1, 8}}) {
    const auto count = NumElements("hidden", shape);
    ASSERT_EQ(count.status().code(), absl::StatusCode::kInvalidArgument) << ShapeText(shape);
    EXPECT_EQ(GetFieldViolation(count.status())->field, "hidden");
    EXPECT_EQ(GetFieldViolation(count.status())->value, ShapeText(shape));
  }
  EXPECT_FALSE(NumBytes("weight", {DType::kFloat32, {std::int64_t{1} << 61}}).ok());
}

}  // namespace
}  // namespace keval
