// C1: do the gradients of two arms agree? Only core/ and its tests include this.
#ifndef KEVAL_CORE_CONTRACT_AGREEMENT_H_
#define KEVAL_CORE_CONTRACT_AGREEMENT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace keval::contract {

struct Agreement {
  bool ok = false;
  // Over elements that are finite in both. max_rel is against |base|, where that isn't 0.
  double max_abs = 0;
  double max_rel = 0;
  // ||candidate - base|| / ||base||; 0 where both are zero, infinite where only base is. Judged before the cast only.
  double frobenius = 0;
  // What of the distance is a multiple of base: <candidate - base, base> / ||base||^2, over elements that are finite in
  // both; 0 where base is. C1 doesn't judge it; core/measure's comparison of a block's results does.
  double trend = 0;
  // What `trend` would be by chance where every element were off by an independent error of one part of itself, or of
  // one: its standard deviation is that times these.
  double trend_by_relative_errors = 0;
  double trend_by_absolute_errors = 0;
  // The largest |candidate - base| in units of its own elementwise limit: at most 1 where all agree; infinite where an
  // element agrees with nothing (see CompareC1).
  double worst_ratio = 0;
  // Distance in steps of the dtype. Reported, not judged: where terms cancel, two float32 orders differ by tens of
  // bfloat16 steps.
  std::int64_t max_ulp = 0;
  std::string why;  // The first reason why not; empty where ok.
};

// One gradient of both arms. float32 and float64 are judged as before the final cast: relative Frobenius distance
// <= 1e-6 and, elementwise, |candidate - base| <= t + t |base| with t = 1e-5 max(1, max|base|). bfloat16 and float16 as
// after it: elementwise, 1 ULP of the larger + 1e-6 max|base|. Equal infinities agree; a NaN agrees with nothing, not
// even with a NaN (C10). Tensors that differ in shape or dtype, or of which one is undefined, don't agree; two
// undefined ones do.
//
// The maxima are over finite values. Works in slices, so that its scratch stays below 2 GiB at any size; `candidate` is
// moved to base's device slice by slice. May throw c10::Error (out of memory), like any torch code.
Agreement CompareC1(const at::Tensor& base, const at::Tensor& candidate);

// Whether both have the same dtype, shape and bits: what P7 and C3 mean by identical. NaNs are equal where their bits
// are.
bool SameBits(const at::Tensor& a, const at::Tensor& b);

// How many elements differ in their bits: 0 exactly where SameBits. Where dtype or shape differ, or one is undefined,
// all elements of the larger, at least 1.
std::int64_t CountDifferent(const at::Tensor& a, const at::Tensor& b);

}  // namespace keval::contract

#endif  // KEVAL_CORE_CONTRACT_AGREEMENT_H_
