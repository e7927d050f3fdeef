#include "core/contract/agreement.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace keval::contract {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

at::Tensor Of(std::initializer_list<double> values, at::ScalarType dtype) {
  return at::tensor(at::ArrayRef<double>(values), at::TensorOptions(at::kDouble)).to(dtype);
}

TEST(CompareC1, EqualTensorsAgree) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor t = Of({1, -2, 0, 3.5}, dtype);
    const Agreement a = CompareC1(t, t.clone());
    EXPECT_TRUE(a.ok) << a.why;
    EXPECT_EQ(a.max_abs, 0);
    EXPECT_EQ(a.max_ulp, 0);
    EXPECT_EQ(a.frobenius, 0);
  }
}

TEST(CompareC1, UncastFrobeniusAndElementwiseLimitsAreBothJudged) {
  // 3e-6 relative everywhere: within each element's limit, beyond the Frobenius one.
  const at::Tensor ones = at::ones({100}, at::kDouble);
  const Agreement all = CompareC1(ones, ones * (1 + 3e-6));
  EXPECT_FALSE(all.ok);
  EXPECT_LE(all.worst_ratio, 1);
  EXPECT_NEAR(all.frobenius, 3e-6, 1e-12);
  EXPECT_NE(all.why.find("Frobenius"), std::string::npos) << all.why;
  EXPECT_TRUE(CompareC1(ones, ones * (1 + 0.9e-6)).ok);

  // One element among 10^4 off by 3e-5: Frobenius 3e-7, elementwise limit 2e-5.
  const at::Tensor many = at::ones({100, 100}, at::kDouble);
  at::Tensor off = many.clone();
  off[3][7] += 3e-5;
  const Agreement one = CompareC1(many, off);
  EXPECT_FALSE(one.ok);
  EXPECT_LT(one.frobenius, 1e-6);
  EXPECT_NEAR(one.worst_ratio, 1.5, 1e-3);
  EXPECT_NE(one.why.find("[3, 7]"), std::string::npos) << one.why;
}

TEST(CompareC1, UncastToleranceScalesWithTheLargestBase) {
  const at::Tensor base = Of({1000, 1e-3}, at::kDouble);
  EXPECT_TRUE(CompareC1(base, Of({1000, 1e-3 + 9e-4}, at::kDouble)).ok);  // t = 1e-2, Frobenius 9e-7.
  EXPECT_FALSE(CompareC1(base, Of({1000, 1e-3 + 2e-2}, at::kDouble)).ok);
}

TEST(CompareC1, AfterTheCastOneUlpOfTheLargerIsAllowed) {
  for (const auto& [dtype, ulp] : {std::pair{at::kBFloat16, std::ldexp(1.0, -7)}, {at::kHalf, std::ldexp(1.0, -10)}}) {
    const at::Tensor base = Of({1.0, -1.0, 0.5}, dtype);
    const Agreement one = CompareC1(base, Of({1 + ulp, -1 - ulp, 0.5}, dtype));
    EXPECT_TRUE(one.ok) << one.why;
    EXPECT_EQ(one.max_ulp, 1);
    const Agreement two = CompareC1(base, Of({1 + 2 * ulp, -1.0, 0.5}, dtype));
    EXPECT_FALSE(two.ok);
    EXPECT_EQ(two.max_ulp, 2);
    EXPECT_NE(two.why.find("[0]"), std::string::npos) << two.why;
  }
}

TEST(CompareC1, AfterTheCastSmallElementsMayDifferByAMillionth) {
  // Far more than one ULP of the element itself, but 0.9e-6 of max|base|.
  const Agreement a = CompareC1(Of({1.0, 1e-7}, at::kBFloat16), Of({1.0, 1e-6}, at::kBFloat16));
  EXPECT_TRUE(a.ok) << a.why;
  EXPECT_GT(a.max_ulp, 100);
  EXPECT_FALSE(CompareC1(Of({1.0, 1e-7}, at::kBFloat16), Of({1.0, 2e-6}, at::kBFloat16)).ok);
}

TEST(CompareC1, TheTrendIsWhatIsAMultipleOfBase) {
  const at::Tensor base = Of({3, -4, 0}, at::kFloat);
  EXPECT_NEAR(CompareC1(base, Of({3.3, -4.4, 0}, at::kFloat)).trend, 0.1, 1e-6);
  EXPECT_NEAR(CompareC1(base, Of({3 + 0.4, -4 + 0.3, 7}, at::kFloat)).trend, 0, 1e-6);  // At right angles to it.
  const Agreement a = CompareC1(base, base.clone());
  EXPECT_EQ(a.trend, 0);
  EXPECT_DOUBLE_EQ(a.trend_by_relative_errors, std::sqrt(81.0 + 256) / 25);
  EXPECT_DOUBLE_EQ(a.trend_by_absolute_errors, 1.0 / 5);
  EXPECT_EQ(CompareC1(Of({0, 0}, at::kFloat), Of({1, 1}, at::kFloat)).trend, 0);
}

TEST(CompareC1, NanNeverCountsAsAgreement) {  // C10
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const Agreement both = CompareC1(Of({1, kNan}, dtype), Of({1, kNan}, dtype));
    EXPECT_FALSE(both.ok);
    EXPECT_EQ(both.worst_ratio, kInf);
    EXPECT_NE(both.why.find("[1]"), std::string::npos) << both.why;
    EXPECT_FALSE(CompareC1(Of({1, 2}, dtype), Of({1, kNan}, dtype)).ok);
    EXPECT_FALSE(CompareC1(Of({1, kNan}, dtype), Of({1, 2}, dtype)).ok);
  }
}

TEST(CompareC1, InfinitiesAgreeOnlyWithThemselves) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    EXPECT_TRUE(CompareC1(Of({1, kInf, -kInf}, dtype), Of({1, kInf, -kInf}, dtype)).ok);
    EXPECT_FALSE(CompareC1(Of({1, kInf}, dtype), Of({1, -kInf}, dtype)).ok);
    // An infinite base must not widen the limits of the others.
    EXPECT_FALSE(CompareC1(Of({1, kInf}, dtype), Of({2, kInf}, dtype)).ok);
    EXPECT_FALSE(CompareC1(Of({1, kInf}, dtype), Of({1, 60000}, dtype)).ok);
  }
}

TEST(CompareC1, ZeroBaseAgreesWithZeroOnly) {
  const Agreement a = CompareC1(at::zeros({3}, at::kFloat), at::full({3}, 1e-7, at::kFloat));
  EXPECT_FALSE(a.ok);  // Frobenius: nothing is small beside zero.
  EXPECT_EQ(a.frobenius, kInf);
  EXPECT_TRUE(CompareC1(at::zeros({3}, at::kFloat), -at::zeros({3}, at::kFloat)).ok);
}

TEST(CompareC1, ShapeDtypeAndPresenceMustMatch) {
  const at::Tensor t = at::ones({2, 3}, at::kFloat);
  EXPECT_FALSE(CompareC1(t, at::ones({3, 2}, at::kFloat)).ok);
  EXPECT_FALSE(CompareC1(t, t.to(at::kDouble)).ok);
  EXPECT_FALSE(CompareC1(t, at::Tensor()).ok);
  EXPECT_FALSE(CompareC1(at::Tensor(), t).ok);
  EXPECT_TRUE(CompareC1(at::Tensor(), at::Tensor()).ok);
  EXPECT_TRUE(CompareC1(at::zeros({0, 4}, at::kFloat), at::zeros({0, 4}, at::kFloat)).ok);
}

TEST(CompareC1, UlpDistanceCrossesZeroAndSaturates) {
  EXPECT_EQ(CompareC1(Of({0.0}, at::kFloat), Of({-0.0}, at::kFloat)).max_ulp, 0);
  const double tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(CompareC1(Of({tiny}, at::kFloat), Of({-tiny}, at::kFloat)).max_ulp, 2);
  EXPECT_GT(CompareC1(Of({1e308}, at::kDouble), Of({-1e308}, at::kDouble)).max_ulp, std::int64_t{1} << 62);
}

TEST(CompareC1, ReadsStridedTensors) {
  const at::Tensor base = at::ones({4, 6}, at::kFloat);
  const Agreement a = CompareC1(base.t(), base.clone().t().contiguous());
  EXPECT_TRUE(a.ok) << a.why;
}

TEST(CountDifferent, CountsElementsThatDifferInABit) {
  EXPECT_EQ(CountDifferent(Of({kNan, 0, 1}, at::kFloat), Of({kNan, 0, 1}, at::kFloat)), 0);
  EXPECT_EQ(CountDifferent(Of({0, -0.0, 1}, at::kFloat), Of({0, 0, 2}, at::kFloat)), 2);
  EXPECT_EQ(CountDifferent(Of({1, 2, 3}, at::kFloat), Of({1, 2, 3}, at::kDouble)), 3);
  EXPECT_EQ(CountDifferent(Of({1, 2}, at::kFloat), at::Tensor()), 2);
  EXPECT_EQ(CountDifferent(at::Tensor(), at::Tensor()), 0);
}

TEST(SameBits, SeesSignsOfZeroAndNanPayloads) {
  EXPECT_FALSE(SameBits(Of({0.0}, at::kFloat), Of({-0.0}, at::kFloat)));
  EXPECT_TRUE(SameBits(Of({kNan}, at::kFloat), Of({kNan}, at::kFloat)));
  EXPECT_TRUE(SameBits(Of({1, 2}, at::kBFloat16), Of({1, 2}, at::kBFloat16)));
  EXPECT_FALSE(SameBits(Of({1, 2}, at::kHalf), Of({1, 2.001}, at::kHalf)));
  EXPECT_FALSE(SameBits(Of({1}, at::kFloat), Of({1}, at::kDouble)));
  EXPECT_FALSE(SameBits(at::Tensor(), Of({1}, at::kDouble)));
}

}  // namespace
}  // namespace keval::contract
