#include "core/measure/weight_gradient.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/linear_logp/chunk_plan.h"
#include "core/linear_logp/host_tensor.h"
#include "core/linear_logp/portable.h"
#include "core/measure/raw_memory.h"

namespace keval::measure {

absl::StatusOr<WeightGradientWork> WeightGradientWork::Create(const linear_logp::Variant& variant,
                                                              const linear_logp::Problem& problem,
                                                              const linear_logp::Options& options,
                                                              const DeviceSession* session) {
  const linear_logp::VariantDescription description = variant.Describe();
  if (description.production_path == linear_logp::ProductionPath::kNone) {
    return absl::FailedPreconditionError(
        absl::StrCat(description.name, " has no weight-gradient accumulation that could be run alone"));
  }
  const auto plan =
      linear_logp::MakeChunkPlan(problem.num_tokens, problem.hidden_size, problem.vocab_size, options.chunk_elems);
  if (!plan.ok()) {
    return plan.status();
  }
  const linear_logp::Device& device = session->device();
  const c10::Device place =
      device.cuda ? c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device.index)) : c10::Device(c10::kCPU);
  const DType type = problem.LogpDtype();
  at::Tensor left = at::empty({plan->chunk_tokens, problem.vocab_size},
                              at::TensorOptions().device(place).dtype(linear_logp::TorchType(type)));
  constexpr std::uint64_t kSeed = 0x647a;  // The same for every arm and round: the values don't matter here.
  if (absl::Status status = FillNormal(session->place(), left.data_ptr(), type, left.numel(), kSeed, 0, 1e-3);
      !status.ok()) {
    return status;
  }
  return WeightGradientWork(std::move(left), plan->chunk_tokens);
}

at::Tensor WeightGradientWork::Run(const linear_logp::Variant& variant,
                                   const linear_logp::VariantInputs& inputs) const {
  const bool is_addmm = variant.Describe().production_path == linear_logp::ProductionPath::kAddmm;
  at::Tensor table = at::zeros({left_.size(1), inputs.hidden.size(1)}, left_.options());
  const std::int64_t tokens = inputs.hidden.size(0);
  for (std::int64_t begin = 0; begin < tokens; begin += chunk_tokens_) {
    const std::int64_t count = std::min(chunk_tokens_, tokens - begin);
    const at::Tensor left = left_.narrow(0, 0, count).t();
    const at::Tensor right = linear_logp::GemmOperand(inputs.hidden.narrow(0, begin, count));
    if (is_addmm && linear_logp::WhyNotInPlace(left, right) == nullptr) {
      table.addmm_(left, right);
    } else {
      linear_logp::MatmulThenAdd(table, left, right);
    }
  }
  return table;
}

}  // namespace keval::measure
