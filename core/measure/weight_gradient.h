// The weight gradient's accumulation alone: the diagnostic that isolates what the two production paths differ in. Torch
// types: only core/ includes this.
#ifndef KEVAL_CORE_MEASURE_WEIGHT_GRADIENT_H_
#define KEVAL_CORE_MEASURE_WEIGHT_GRADIENT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/linear_logp/variant.h"
#include "core/measure/device_session.h"

namespace keval::measure {

// Holds the left operand, which stands for dz of every chunk: values don't matter to the time, its layout (the
// transpose of a row-major [chunk_tokens, V]) does.
class WeightGradientWork {
 public:
  // FAILED_PRECONDITION where `variant` is not one of the two production paths. May throw c10::Error.
  static absl::StatusOr<WeightGradientWork> Create(const linear_logp::Variant& variant,
                                                   const linear_logp::Problem& problem,
                                                   const linear_logp::Options& options, const DeviceSession* session);

  // The table [V, D], zeroed, then every chunk added by `variant`'s update. Under the caller's autocast state.
  at::Tensor Run(const linear_logp::Variant& variant, const linear_logp::VariantInputs& inputs) const;

 private:
  WeightGradientWork(at::Tensor left, std::int64_t chunk_tokens)
      : left_(std::move(left)), chunk_tokens_(chunk_tokens) {}

  at::Tensor left_;  // [chunk_tokens, V]
  std::int64_t chunk_tokens_;
};

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_WEIGHT_GRADIENT_H_
