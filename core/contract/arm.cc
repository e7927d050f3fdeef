#include "core/contract/arm.h"

#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>

#include <array>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/contract/agreement.h"
#include "core/linear_logp/autocast.h"
#include "core/linear_logp/cuda_device.h"
#include "core/linear_logp/failure_text.h"

namespace keval::contract {
namespace {

using linear_logp::AutocastScope;
using linear_logp::Gradients;
using linear_logp::Options;
using linear_logp::Variant;
using linear_logp::VariantInputs;
using linear_logp::Want;

at::Tensor ToHost(const at::Tensor& tensor) { return tensor.defined() ? tensor.to(at::kCPU) : tensor; }

// What of a thread's autocast state can be asked: all that P10 names but the nesting.
struct AutocastState {
  bool enabled;
  at::ScalarType dtype;
  bool cache;
  friend bool operator==(const AutocastState&, const AutocastState&) = default;
};

AutocastState ReadAutocast(c10::DeviceType device) {
  return {at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device),
          at::autocast::is_autocast_cache_enabled()};
}

// Copies of a case's inputs, to see and undo what a variant does to them.
class InputGuard {
 public:
  explicit InputGuard(const VariantInputs& inputs)
      : named_{{{"hidden", inputs.hidden, {}},
                {"weight", inputs.weight, {}},
                {"bias", inputs.bias, {}},
                {"targets", inputs.targets, {}},
                {"grad_logp", inputs.grad_logp, {}}}} {
    for (Named& input : named_) {
      if (input.tensor.defined()) input.before = input.tensor.clone();
    }
  }

  // The first input that changed, put back; empty where none did.
  std::string Restore() {
    std::string changed;
    for (Named& input : named_) {
      if (SameBits(input.tensor, input.before)) continue;
      if (changed.empty()) changed = input.name;
      // A view with stride 0 has one element to put back.
      const bool expanded = input.tensor.dim() == 1 && input.tensor.stride(0) == 0 && input.tensor.numel() > 0;
      (expanded ? input.tensor.slice(0, 0, 1) : input.tensor)
          .copy_(expanded ? input.before.slice(0, 0, 1) : input.before);
    }
    return changed;
  }

 private:
  struct Named {
    const char* name;
    at::Tensor tensor;
    at::Tensor before;
  };
  std::array<Named, 5> named_;
};

}  // namespace

void StopIfLost(const linear_logp::Device& device) {
  if (!device.cuda) return;
  const absl::Status status = linear_logp::CudaLoss(device.index);
  if (!status.ok()) throw linear_logp::Stopped{status};
}

Arm::Arm(int index, const Variant* variant, linear_logp::Device device, linear_logp::ContinueCheck check,
         RunningMark* running)
    : index_(index),
      variant_(variant),
      description_(variant->Describe()),
      device_(device),
      check_(std::move(check)),
      running_(running) {}

Options Arm::OptionsOf(const Case& test_case) const {
  Options options = test_case.options;
  options.variant = description_.name;
  return options;
}

template <typename Call>
void Arm::Guard(Outcome* outcome, const Call& call) const {
  if (check_) {
    const absl::Status status = check_();
    if (!status.ok()) throw linear_logp::Stopped{status};
  }
  const RunningScope running(running_, Runs());
  try {
    call();
  } catch (const linear_logp::Stopped&) {
    throw;  // The caller is to stop: nothing that the variant did wrong.
  } catch (const std::exception& error) {
    StopIfLost(device_);
    absl::Status status = linear_logp::StatusOfFailure(error);
    // Not in what the variant computes: the mark, which stays, tells whose call it was.
    if (absl::IsResourceExhausted(status) || absl::IsUnavailable(status)) throw linear_logp::Stopped{std::move(status)};
    const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
    outcome->error =
        absl::StrCat("threw: ", torch_error == nullptr ? error.what() : torch_error->what_without_backtrace());
  }
  StopIfLost(device_);
}

bool Arm::Declines(const Case& test_case, Outcome* outcome) const {
  const Options options = OptionsOf(test_case);
  const linear_logp::Support support =
      Marked([&](const Variant& variant) { return variant.Supports(test_case.problem, options, device_); });
  if (support.supported) return false;
  outcome->declined = absl::StrCat("declines ", test_case.Label(), ": ",
                                   support.reason.empty() ? "it gives no reason" : support.reason);
  return true;
}

Outcome Arm::Run(const Case& test_case, Want want) const {
  Outcome outcome;
  if (Declines(test_case, &outcome)) return outcome;
  const Options options = OptionsOf(test_case);
  outcome.forward_dispatch.requested_variant = description_.name;
  outcome.backward_dispatch.requested_variant = description_.name;
  InputGuard guard(test_case.inputs);
  Guard(&outcome, [&] {
    const AutocastScope autocast(TorchDeviceType(device_), options.autocast);
    const AutocastState found = ReadAutocast(TorchDeviceType(device_));
    VariantInputs forward_inputs = test_case.inputs;
    forward_inputs.grad_logp = at::Tensor();
    {
      const OpTraceScope trace(&outcome.forward_ops);
      outcome.logp = variant_->Forward(forward_inputs, options, check_, &outcome.forward_dispatch);
    }
    {
      const OpTraceScope trace(&outcome.backward_ops);
      outcome.gradients = variant_->Backward(test_case.inputs, options, want, check_, &outcome.backward_dispatch);
    }
    outcome.changed_autocast = !(ReadAutocast(TorchDeviceType(device_)) == found);
    outcome.logp = ToHost(outcome.logp);
    Gradients& gradients = outcome.gradients;
    gradients = {ToHost(gradients.grad_hidden), ToHost(gradients.grad_weight), ToHost(gradients.grad_bias)};
  });
  outcome.changed_input = guard.Restore();
  return outcome;
}

Outcome Arm::RunLarge(const Case& test_case) const {
  Outcome outcome;
  if (Declines(test_case, &outcome)) return outcome;
  const Options options = OptionsOf(test_case);
  Guard(&outcome, [&] {
    const AutocastScope autocast(TorchDeviceType(device_), options.autocast);
    outcome.logp = variant_->Forward(test_case.inputs, options, check_, nullptr);
    outcome.gradients = variant_->Backward(test_case.inputs, options, {}, check_, nullptr);
  });
  return outcome;
}

std::int64_t Arm::ScratchBytes(const Case& test_case) const {
  return Marked(
      [&](const Variant& variant) { return variant.ScratchBytes(test_case.problem, OptionsOf(test_case), {}); });
}

}  // namespace keval::contract
