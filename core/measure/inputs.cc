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
enum Purpose : std::uint64_t { kHidden = 1, kWeight, kBias, kTargets, kUpstream, kFreeToken, kVariation };
constexpr std::uint64_t kOtherSet = 16;

constexpr std::int64_t kPatchRows = 64;  // Rows of weight that differ between the sets: few, so that changing is quick.
constexpr double kLogitDeviation = 2;
constexpr double kBiasDeviation = 0.5;
constexpr std::int64_t kFewestTokensToVary = 8;

std::array<const at::Tensor*, kInputNames.size()> AllOf(const linear_logp::VariantInputs& tensors) {
  return {&tensors.hidden, &tensors.weight, &tensors.bias, &tensors.targets, &tensors.grad_logp};
}

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
  if (problem.num_tokens >= kFewestTokensToVary) {
    const auto between =
        static_cast<std::int64_t>(SubSeed(seed, kFreeToken) % static_cast<std::uint64_t>(problem.num_tokens - 2));
    values.free_tokens_ = {0, 1 + between, problem.num_tokens - 1};
  }
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
  sign_ = 1;
  return FillSet();
}

absl::Status InputValues::Restore() {
  sign_ = 1;
  return FillSet();
}

absl::Status InputValues::Vary() {
  const std::uint64_t variation = variations_++;
  sign_ = (CounterBits(SubSeed(seed_, kVariation), variation) & 1) == 0 ? 1 : -1;
  std::uint64_t row = variation * free_tokens_.size();
  for (const std::int64_t token : free_tokens_) {
    absl::Status status =
        FillNormal(session_->place(), tensors_.hidden.select(0, token).data_ptr(), problem_.dtype, problem_.hidden_size,
                   SubSeed(seed_, kFreeToken), row++ * static_cast<std::uint64_t>(problem_.hidden_size), 1);
    if (!status.ok()) {
      return status;
    }
  }
  return FillUpstream();
}

std::uint64_t InputValues::SeedFor(std::uint64_t purpose) const {
  return SubSeed(seed_, purpose + (set_ == 1 ? kOtherSet : 0));
}

absl::Status InputValues::FillUpstream() {
  absl::Status status = FillNormal(session_->place(), tensors_.grad_logp.data_ptr(), problem_.LogpDtype(),
                                   problem_.num_tokens, SeedFor(kUpstream), 0, sign_);
  for (const std::int64_t token : free_tokens_) {
    tensors_.grad_logp.narrow(0, token, 1).zero_();
  }
  return status;
}

absl::Status InputValues::FillSet() {
  const MemoryPlace place = session_->place();
  const std::int64_t rows = std::min(kPatchRows, problem_.vocab_size);
  const std::int64_t first = (problem_.vocab_size - rows) / 2 * problem_.hidden_size;
  absl::Status status =
      FillNormal(place, static_cast<char*>(tensors_.weight.data_ptr()) + first * DTypeSize(problem_.dtype),
                 problem_.dtype, rows * problem_.hidden_size, SeedFor(kWeight), static_cast<std::uint64_t>(first),
                 kLogitDeviation / std::sqrt(static_cast<double>(problem_.hidden_size)));
  if (status.ok()) {
    status =
        FillNormal(place, tensors_.hidden.data_ptr(), problem_.dtype, tensors_.hidden.numel(), SeedFor(kHidden), 0, 1);
  }
  if (status.ok() && tensors_.bias.defined()) {
    status = FillNormal(place, tensors_.bias.data_ptr(), problem_.dtype, tensors_.bias.numel(), SeedFor(kBias), 0,
                        kBiasDeviation);
  }
  if (status.ok()) {
    status = FillTargets(place, tensors_.targets.data_ptr<std::int64_t>(), problem_.num_tokens, SeedFor(kTargets),
                         problem_.vocab_size);
  }
  return status.ok() ? FillUpstream() : status;
}

std::int64_t InputValues::bytes() const {
  std::int64_t bytes = 0;
  for (const at::Tensor* tensor : AllOf(tensors_)) {
    bytes += tensor->defined() ? static_cast<std::int64_t>(tensor->nbytes()) : 0;
  }
  return bytes;
}

absl::StatusOr<std::uint64_t> InputValues::DigestOne(std::size_t input) const {
  const at::Tensor& tensor = *AllOf(tensors_)[input];
  return tensor.defined()
             ? measure::Digest(session_->place(), tensor.const_data_ptr(), static_cast<std::int64_t>(tensor.nbytes()))
             : 0;
}

absl::StatusOr<InputDigests> InputValues::Digest() const {
  InputDigests digests{};
  for (std::size_t i = 0; i < digests.size(); ++i) {
    absl::StatusOr<std::uint64_t> digest = DigestOne(i);
    if (!digest.ok()) {
      return digest.status();
    }
    digests[i] = *digest;
  }
  return digests;
}

absl::StatusOr<InputDigests> InputValues::DigestVaried(const InputDigests& others) const {
  constexpr std::size_t kHiddenAt = 0;
  constexpr std::size_t kUpstreamAt = kInputNames.size() - 1;
  InputDigests digests = others;
  for (const std::size_t i : {kHiddenAt, kUpstreamAt}) {
    absl::StatusOr<std::uint64_t> digest = DigestOne(i);
    if (!digest.ok()) {
      return digest.status();
    }
    digests[i] = *digest;
  }
  return digests;
}

}  // namespace keval::measure
