#include "core/contract/agreement.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/number.h"

namespace keval::contract {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kFrobeniusLimit = 1e-6;
constexpr double kTolerance = 1e-5;
constexpr double kCastTolerance = 1e-6;
// A slice has about ten float64 temporaries: 1.3 GiB.
constexpr std::int64_t kSliceElements = std::int64_t{1} << 24;

bool IsCast(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf; }

at::ScalarType BitsType(std::int64_t itemsize) {
  switch (itemsize) {
    case 1:
      return at::kByte;
    case 2:
      return at::kShort;
    case 4:
      return at::kInt;
    default:
      return at::kLong;
  }
}

at::Tensor Bits(const at::Tensor& values) { return values.view(BitsType(values.element_size())); }

// |values| as its place among the dtype's non-negative numbers, int64.
at::Tensor MagnitudeSteps(const at::Tensor& values) { return Bits(at::abs(values)).to(at::kLong); }

// Steps between finite elements, saturating; both signed zeros are step 0.
std::int64_t MaxUlp(const at::Tensor& base, const at::Tensor& candidate, const at::Tensor& finite) {
  const at::Tensor steps_b = MagnitudeSteps(base);
  const at::Tensor steps_c = MagnitudeSteps(candidate);
  const std::int64_t half = std::numeric_limits<std::int64_t>::max() / 2;
  const at::Tensor same_sign = base.signbit().eq(candidate.signbit());
  const at::Tensor distance =
      at::where(same_sign, at::abs(steps_b - steps_c), at::clamp_max(steps_b, half) + at::clamp_max(steps_c, half));
  return at::where(finite, distance, at::scalar_tensor(0, distance.options())).max().item<std::int64_t>();
}

// One unit in the last place of `larger` (>= 0, finite, 16-bit), as float64: the distance to the next larger number.
// The greatest finite number has its predecessor's.
at::Tensor UlpOf(const at::Tensor& larger) {
  const at::ScalarType dtype = larger.scalar_type();
  const std::int64_t largest_bits = dtype == at::kHalf ? 0x7bff : 0x7f7f;
  const at::Tensor bits = at::clamp_max(Bits(larger), largest_bits - 1);
  const at::Tensor next = (bits + 1).view(dtype).to(at::kDouble);
  return next - bits.view(dtype).to(at::kDouble);
}

std::string IndexText(std::int64_t flat, at::IntArrayRef shape) {
  std::string text;
  for (std::size_t i = shape.size(); i-- > 0;) {
    text = absl::StrCat(flat % shape[i], text.empty() ? "" : ", ", text);
    flat /= shape[i];
  }
  return absl::StrCat("[", text, "]");
}

std::string Text(const at::Tensor& flat, std::int64_t index) { return DoubleText(flat[index].item<double>()); }

// Slices of both tensors, flat and contiguous, on base's device.
class Slices {
 public:
  Slices(const at::Tensor& base, const at::Tensor& candidate)
      : base_(base.detach().reshape({-1})), candidate_(candidate.detach().reshape({-1})) {}

  template <typename Visit>
  void ForEach(Visit visit) const {
    for (std::int64_t begin = 0; begin < base_.numel(); begin += kSliceElements) {
      const std::int64_t length = std::min(kSliceElements, base_.numel() - begin);
      const at::Tensor base = base_.narrow(0, begin, length).contiguous();
      const at::Tensor candidate = candidate_.narrow(0, begin, length).to(base.device()).contiguous();
      visit(begin, base, candidate);
    }
  }

 private:
  at::Tensor base_;
  at::Tensor candidate_;
};

struct Norms {
  double max_base = 0;
  double base_squares = 0;
  double base_quartics = 0;  // Of fourth powers.
  double difference_squares = 0;
  double product = 0;  // <base, candidate - base>
};

Norms MeasureNorms(const Slices& slices, Agreement* agreement) {
  Norms norms;
  slices.ForEach([&](std::int64_t, const at::Tensor& base, const at::Tensor& candidate) {
    const at::Tensor b = base.to(at::kDouble);
    const at::Tensor c = candidate.to(at::kDouble);
    const at::Tensor zero = at::scalar_tensor(0, b.options());
    const at::Tensor b_finite = at::where(at::isfinite(b), b, zero);
    const at::Tensor finite = at::isfinite(b).logical_and_(at::isfinite(c));
    const at::Tensor difference = at::where(finite, c - b, zero).abs_();
    const at::Tensor magnitude = b_finite.abs();
    norms.max_base = std::max(norms.max_base, magnitude.max().item<double>());
    const at::Tensor b_squares = b_finite.square();
    norms.base_squares += b_squares.sum().item<double>();
    norms.base_quartics += b_squares.square().sum().item<double>();
    norms.product += (at::where(finite, c - b, zero) * b_finite).sum().item<double>();
    norms.difference_squares += difference.square().sum().item<double>();
    agreement->max_abs = std::max(agreement->max_abs, difference.max().item<double>());
    const at::Tensor relative = at::where(magnitude.gt(0), difference / magnitude, zero);
    agreement->max_rel = std::max(agreement->max_rel, relative.max().item<double>());
    agreement->max_ulp = std::max(agreement->max_ulp, MaxUlp(base, candidate, finite));
  });
  return norms;
}

}  // namespace

Agreement CompareC1(const at::Tensor& base, const at::Tensor& candidate) {
  Agreement result;
  if (!base.defined() || !candidate.defined()) {
    result.ok = base.defined() == candidate.defined();
    if (!result.ok) result.why = absl::StrCat(base.defined() ? "candidate" : "base", " has no such gradient");
    return result;
  }
  if (base.scalar_type() != candidate.scalar_type() || base.sizes() != candidate.sizes()) {
    result.worst_ratio = kInfinity;
    result.why = "base and candidate differ in dtype or shape";
    return result;
  }
  const Slices slices(base, candidate);
  const Norms norms = MeasureNorms(slices, &result);
  const double difference_norm = std::sqrt(norms.difference_squares);
  if (difference_norm > 0) {
    result.frobenius = norms.base_squares > 0 ? difference_norm / std::sqrt(norms.base_squares) : kInfinity;
  }
  if (norms.base_squares > 0) {
    result.trend = norms.product / norms.base_squares;
    result.trend_by_relative_errors = std::sqrt(norms.base_quartics) / norms.base_squares;
    result.trend_by_absolute_errors = 1 / std::sqrt(norms.base_squares);
  }
  const bool cast = IsCast(base.scalar_type());
  const double tolerance = kTolerance * std::max(1.0, norms.max_base);
  const double cast_tolerance = kCastTolerance * norms.max_base;

  slices.ForEach([&](std::int64_t begin, const at::Tensor& b, const at::Tensor& c) {
    const at::Tensor wide_b = b.to(at::kDouble);
    const at::Tensor wide_c = c.to(at::kDouble);
    const at::Tensor limit =
        cast ? UlpOf(at::maximum(b.abs(), c.abs())).add_(cast_tolerance) : wide_b.abs().mul_(tolerance).add_(tolerance);
    // Differing or missing numbers are infinitely far apart; equal infinities are not apart.
    const at::Tensor zero = at::scalar_tensor(0, wide_b.options());
    const at::Tensor apart = at::scalar_tensor(kInfinity, wide_b.options());
    const at::Tensor finite = at::isfinite(wide_b).logical_and_(at::isfinite(wide_c));
    const at::Tensor ratio =
        at::where(finite, (wide_c - wide_b).abs_().div_(limit), at::where(wide_b.eq(wide_c), zero, apart));
    const auto worst = ratio.argmax().item<std::int64_t>();
    const auto worst_ratio = ratio[worst].item<double>();
    if (worst_ratio <= result.worst_ratio) return;
    result.worst_ratio = worst_ratio;
    if (worst_ratio > 1) {
      result.why = absl::StrCat("element ", IndexText(begin + worst, base.sizes()), ": base ", Text(wide_b, worst),
                                ", candidate ", Text(wide_c, worst), ", limit of the difference ",
                                worst_ratio < kInfinity ? Text(limit, worst) : "none: not both finite");
    }
  });
  if (result.why.empty() && !cast && result.frobenius > kFrobeniusLimit) {
    result.why = absl::StrCat("relative Frobenius distance ", DoubleText(result.frobenius), " above ",
                              DoubleText(kFrobeniusLimit));
  }
  result.ok = result.why.empty();
  return result;
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  return at::equal(Bits(a.detach().contiguous()), Bits(b.detach().contiguous()));
}

std::int64_t CountDifferent(const at::Tensor& a, const at::Tensor& b) {
  if (SameBits(a, b)) return 0;
  if (a.defined() && b.defined() && a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes()) {
    return Bits(a.detach().contiguous()).ne(Bits(b.detach().contiguous())).sum().item<std::int64_t>();
  }
  return std::max({std::int64_t{1}, a.defined() ? a.numel() : 0, b.defined() ? b.numel() : 0});
}

}  // namespace keval::contract
