#include "core/measure/results.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/number.h"
#include "core/contract/accuracy.h"
#include "core/contract/agreement.h"
#include "core/measure/raw_memory.h"

namespace keval::measure {
namespace {

using linear_logp::ProductionPath;
using linear_logp::VariantDescription;

constexpr std::chrono::milliseconds kPatience{1000};  // For work that goes on behind a call's back.
constexpr std::chrono::milliseconds kStep{10};

constexpr double kOtherSums = 1e-5;  // Between implementations that sum in float32 in another order.
constexpr double kAutocast = 1e-2;   // Between those that multiply in 16 bits.
constexpr double kChance = 6;        // Standard deviations.

bool IsCast(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }

// Relative Frobenius distance of two right implementations: both are rounded to the result's type.
double DistanceLimit(at::ScalarType type, double declared_epsilon, bool autocast) {
  const double rounding = IsCast(type) ? 2 * contract::RoundingUnit(type) : 0;
  return std::max(autocast ? kAutocast : kOtherSums + rounding, 8 * declared_epsilon);
}

// Rounding to 16 bits hides a result that is too large throughout from every element's own limit; summed up it shows.
// What chance makes of two roundings, each up to a unit and evenly spread; float16 has an absolute one below 2^-14.
double TrendLimit(at::ScalarType type, const contract::Agreement& agreement, double declared_epsilon, bool autocast) {
  if (autocast) {
    return kAutocast;
  }
  double by_chance = 0;
  if (IsCast(type)) {
    by_chance = contract::RoundingUnit(type) * agreement.trend_by_relative_errors;
    if (type == at::kHalf) {
      by_chance += std::ldexp(1.0, -25) * agreement.trend_by_absolute_errors;
    }
    by_chance *= std::sqrt(2.0 / 3.0);
  }
  return kOtherSums + declared_epsilon + kChance * by_chance;
}

}  // namespace

absl::StatusOr<Digests> DigestsOf(const DeviceSession& session, const Results& results) {
  Digests digests{};
  for (std::size_t i = 0; i < kResults; ++i) {
    if (!results[i].defined()) {
      continue;
    }
    at::Tensor flat = results[i].contiguous();
    if (reinterpret_cast<std::uintptr_t>(flat.const_data_ptr()) % 8 != 0) {  // A part of another tensor.
      flat = flat.clone();
    }
    absl::StatusOr<std::uint64_t> digest =
        Digest(session.place(), flat.const_data_ptr(), static_cast<std::int64_t>(flat.nbytes()));
    if (!digest.ok()) {
      return digest.status();
    }
    digests[i] = *digest;
  }
  return digests;
}

absl::Status PoisonAndDrop(const DeviceSession& session, Results* results) {
  absl::Status status;
  for (at::Tensor& tensor : *results) {
    if (tensor.defined() && status.ok()) {  // The whole storage, whatever part of it the tensor is.
      status = Poison(session.place(), tensor.storage().mutable_data(),
                      static_cast<std::int64_t>(tensor.storage().nbytes()));
    }
    tensor.reset();
  }
  return status;
}

void Unify(int sign, Results* results) {
  for (std::size_t i = 0; i < kResults; ++i) {
    at::Tensor& result = (*results)[i];
    if (!result.defined()) {
      continue;
    }
    if (!result.is_non_overlapping_and_dense()) {
      result = result.clone();
    }
    if (i > 0 && sign < 0) {
      result.neg_();
    }
    result.add_(0);  // -0 becomes 0.
  }
}

Disagreement Compare(const VariantDescription& base_is, const VariantDescription& own_is, bool autocast,
                     const Results& base, const Results& own) {
  const double epsilon = std::max(base_is.epsilon, own_is.epsilon);
  const bool both_production =
      base_is.production_path != ProductionPath::kNone && own_is.production_path != ProductionPath::kNone;
  for (std::size_t i = 0; i < kResults; ++i) {
    const contract::Agreement agreement = contract::CompareC1(base[i], own[i]);
    bool ok = agreement.ok;
    if (!base[i].defined() || !own[i].defined()) {
      if (!ok) return {i, agreement.why};
      continue;
    }
    const at::ScalarType type = base[i].scalar_type();
    if (!ok && !both_production) {
      // The norm is over elements that are finite on both sides: of other types and shapes, and of NaN, it says
      // nothing.
      ok = std::isfinite(agreement.worst_ratio) && agreement.frobenius <= DistanceLimit(type, epsilon, autocast);
    }
    if (!ok) {
      return {i, agreement.why};
    }
    if (const double limit = TrendLimit(type, agreement, epsilon, autocast); std::abs(agreement.trend) > limit) {
      return {i, absl::StrCat("throughout larger or smaller by a part of ", DoubleText(agreement.trend),
                              ", which rounding explains up to ", DoubleText(limit))};
    }
  }
  return {};
}

absl::StatusOr<bool> StillChanging(const DeviceSession& session, const Results& results, const Digests& digests) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    if (absl::Status status = session.Synchronize(); !status.ok()) {
      return status;
    }
    absl::StatusOr<Digests> now = DigestsOf(session, results);
    if (!now.ok()) {
      return now.status();
    }
    if (*now != digests) {
      return true;
    }
    if (session.device().cuda) {
      return false;  // All streams have ended.
    }
    std::this_thread::sleep_for(kStep);
  }
  return false;
}

bool HoldsRunOf(std::uint8_t byte, const at::Tensor& result) {
  constexpr std::int64_t kRun = 4;
  if (!result.defined() || result.numel() < kRun) {
    return false;
  }
  std::uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) {
    bits = bits << 8 | byte;
  }
  const at::Tensor flat = result.contiguous().view({-1});
  at::Tensor holds;
  switch (result.element_size()) {
    case 2:
      holds = flat.view(at::kShort).eq(static_cast<std::int16_t>(bits));
      break;
    case 4:
      holds = flat.view(at::kInt).eq(static_cast<std::int32_t>(bits));
      break;
    default:
      holds = flat.view(at::kLong).eq(static_cast<std::int64_t>(bits));
  }
  at::Tensor run = holds.slice(0, 0, flat.numel() - kRun + 1);
  for (std::int64_t at = 1; at < kRun; ++at) {
    run = run.logical_and(holds.slice(0, at, flat.numel() - kRun + 1 + at));
  }
  return run.any().item<bool>();
}

bool LooksRounded(const at::Tensor& base, const at::Tensor& own) {
  constexpr std::int64_t kMost = std::int64_t{1} << 22;
  if (!base.defined() || !own.defined() || base.scalar_type() != at::kFloat || own.scalar_type() != at::kFloat ||
      base.numel() != own.numel() || base.numel() == 0) {
    return false;
  }
  const std::int64_t count = std::min(kMost, base.numel());
  const at::Tensor want = base.contiguous().view({-1}).narrow(0, 0, count).to(at::kDouble);
  const at::Tensor error = own.contiguous().view({-1}).narrow(0, 0, count).to(at::kDouble) - want;
  const auto size = want.norm().item<double>();
  const auto error_size = error.norm().item<double>();
  if (!(size > 0 && error_size > 2e-5 * size && error_size < 1e-2 * size)) {
    return false;
  }
  const double along = std::abs(error.dot(want).item<double>()) / (size * error_size);
  const double typical = error_size / std::sqrt(static_cast<double>(count));
  const auto touched = error.abs().gt(0.01 * typical).to(at::kDouble).mean().item<double>();
  return along < 0.3 && touched > 0.5;
}

}  // namespace keval::measure
