#include "core/measure/inputs.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/linear_logp/host_tensor.h"
#include "core/measure/counter_generator.h"
#include "core/measure/raw_memory.h"

namespace keval::measure {
namespace {

// Sub-seeds: what a value is for. Set 1 uses the purpose plus kOtherSet.
enum Purpose : std::uint64_t { kHidden = 1, kWeight, kBias, kTargets, kUpstream };
constexpr std::uint64_t kOtherSet = 16;

constexpr std::int64_t kPatchRows = 64;  // Rows of weight that differ between the sets: few, so that changing is quick.
constexpr double kLogitDeviation = 2;
constexpr double kBiasDeviation = 0.5;

}  // namespace

absl::StatusOr<InputValues> InputValues::Create(const linear_logp::Problem& problem, std::uint64_t seed,
                                                const DeviceSession* session) {
  InputValues values(problem, seed, session);
  const linear_logp::Device& device = session->device();
  const c10::Device place =
      device.cuda ? c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device.index)) : c10::Device(c10::kCPU);
  const auto floating = at::TensorOptions().device(place).dtype(linear_logp::TorchType(problem.dtype));
  linear_logp::VariantInputs& tensors = values.tensors_;
  tensors.hidden = at::empty({problem.num_tokens, problem.hidden_size}, floating);
  tensors.weight = at::empty({problem.vocab_size, problem.hidden_size}, floating);
  if (problem.has_bias) {
    tensors.bias = at::empty({problem.vocab_size}, floating);
  }
  tensors.targets = at::empty({problem.num_tokens}, floating.dtype(c10::kLong));
  tensors.grad_logp = at::empty({problem.num_tokens}, floating.dtype(linear_logp::TorchType(problem.LogpDtype())));
  absl::Status status =
      FillNormal(session->place(), tensors.weight.data_ptr(), problem.dtype, tensors.weight.numel(),
                 SubSeed(seed, kWeight), 0, kLogitDeviation / std::sqrt(static_cast<double>(problem.hidden_size)));
  if (status.ok()) {
    status = values.FillSet();
  }
  if (!status.ok()) {
    return status;
  }
  return values;
}

absl::Status InputValues::Next() {
  set_ = 1 - set_;
  return FillSet();
}

absl::Status InputValues::FillSet() {
  const MemoryPlace place = session_->place();
  const auto seed = [this](Purpose purpose) {
    return SubSeed(seed_, static_cast<std::uint64_t>(purpose) + (set_ == 1 ? kOtherSet : 0));
  };
  const std::int64_t rows = std::min(kPatchRows, problem_.vocab_size);
  const std::int64_t first = (problem_.vocab_size - rows) / 2 * problem_.hidden_size;
  absl::Status status =
      FillNormal(place, static_cast<char*>(tensors_.weight.data_ptr()) + first * DTypeSize(problem_.dtype),
                 problem_.dtype, rows * problem_.hidden_size, seed(kWeight), static_cast<std::uint64_t>(first),
                 kLogitDeviation / std::sqrt(static_cast<double>(problem_.hidden_size)));
  if (status.ok()) {
    status =
        FillNormal(place, tensors_.hidden.data_ptr(), problem_.dtype, tensors_.hidden.numel(), seed(kHidden), 0, 1);
  }
  if (status.ok() && tensors_.bias.defined()) {
    status = FillNormal(place, tensors_.bias.data_ptr(), problem_.dtype, tensors_.bias.numel(), seed(kBias), 0,
                        kBiasDeviation);
  }
  if (status.ok()) {
    status = FillTargets(place, tensors_.targets.data_ptr<std::int64_t>(), problem_.num_tokens, seed(kTargets),
                         problem_.vocab_size);
  }
  if (status.ok()) {
    status = FillNormal(place, tensors_.grad_logp.data_ptr(), problem_.LogpDtype(), problem_.num_tokens,
                        seed(kUpstream), 0, 1);
  }
  return status;
}

std::int64_t InputValues::bytes() const {
  std::int64_t bytes = 0;
  for (const at::Tensor* tensor :
       {&tensors_.hidden, &tensors_.weight, &tensors_.bias, &tensors_.targets, &tensors_.grad_logp}) {
    bytes += tensor->defined() ? static_cast<std::int64_t>(tensor->nbytes()) : 0;
  }
  return bytes;
}

absl::StatusOr<InputDigests> InputValues::Digest() const {
  InputDigests digests{};
  const std::array<const at::Tensor*, kInputNames.size()> all = {&tensors_.hidden, &tensors_.weight, &tensors_.bias,
                                                                 &tensors_.targets, &tensors_.grad_logp};
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i]->defined()) {
      continue;
    }
    absl::StatusOr<std::uint64_t> digest =
        measure::Digest(session_->place(), all[i]->const_data_ptr(), static_cast<std::int64_t>(all[i]->nbytes()));
    if (!digest.ok()) {
      return digest.status();
    }
    digests[i] = *digest;
  }
  return digests;
}

}  // namespace keval::measure
