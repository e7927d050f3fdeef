// Sums and products of byte counts that stop at INT64_MAX instead of overflowing: an estimate that large is refused by
// any device all the same.
#ifndef KEVAL_CORE_LINEAR_LOGP_BYTE_COUNT_H_
#define KEVAL_CORE_LINEAR_LOGP_BYTE_COUNT_H_

#include <cstdint>
#include <initializer_list>
#include <limits>

#include "base/shape.h"

namespace keval::linear_logp {

// The product of non-negative factors.
inline std::int64_t SaturatingProduct(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    product = CheckedMultiply(product, factor).value_or(std::numeric_limits<std::int64_t>::max());
  }
  return product;
}

// The sum of non-negative terms.
inline std::int64_t SaturatingSum(std::initializer_list<std::int64_t> terms) {
  std::int64_t sum = 0;
  for (const std::int64_t term : terms) {
    if (__builtin_add_overflow(sum, term, &sum)) return std::numeric_limits<std::int64_t>::max();
  }
  return sum;
}

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_BYTE_COUNT_H_
