#include "core/linear_logp/autograd_function.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/add.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/linear_logp/autocast.h"
#include "core/linear_logp/portable.h"

namespace keval::linear_logp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// What a call carries from forward to backward beside its tensors.
struct Call final : torch::CustomClassHolder {
  Call(const Variant* variant_in, Options options_in, ContinueCheck check_in)
      : variant(variant_in), options(std::move(options_in)), check(std::move(check_in)) {
    options.grad_dtype = GradDtype::kInput;  // Autograd demands a gradient of its input's dtype.
  }

  const Variant* variant;
  Options options;
  ContinueCheck check;
};

// Which of forward's tensors need a gradient.
struct Needed {
  bool hidden = false;
  bool weight = false;
  bool bias = false;
};

VariantInputs Flatten(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& targets) {
  VariantInputs inputs;
  inputs.hidden = hidden.reshape({targets.numel(), hidden.size(-1)}).contiguous();
  inputs.weight = weight.contiguous();
  if (bias.defined()) inputs.bias = bias.contiguous();
  inputs.targets = targets.reshape({-1}).to(at::kLong);
  return inputs;
}

// The backward written with differentiable operators, for create_graph.
variable_list DifferentiableBackward(const VariantInputs& inputs, const at::Tensor& hidden_as_given, Needed needed) {
  const at::ScalarType type = inputs.hidden.scalar_type();
  const at::Tensor hidden = GemmOperand(inputs.hidden);
  const at::Tensor weight = GemmOperand(inputs.weight);
  at::Tensor logits = at::matmul(hidden, weight.t()).to(AccumulationType(inputs.hidden));
  if (inputs.bias.defined()) logits = at::add(logits, inputs.bias);
  const at::Tensor onehot = at::zeros_like(logits.detach()).scatter(1, inputs.targets.unsqueeze(1), 1);
  const at::Tensor dz = at::mul(at::sub(onehot, at::softmax(logits, 1)), inputs.grad_logp.unsqueeze(1));
  variable_list gradients(3);
  if (needed.hidden) gradients[0] = at::matmul(dz, weight).to(type).reshape(hidden_as_given.sizes());
  if (needed.weight) gradients[1] = at::matmul(dz.t(), hidden).to(type);
  if (needed.bias) gradients[2] = dz.sum(0).to(type);
  return gradients;
}

struct LinearLogpFunction : public torch::autograd::Function<LinearLogpFunction> {
  static Variable forward(AutogradContext* ctx, const at::Tensor& hidden, const at::Tensor& weight,
                          const std::optional<at::Tensor>& bias_or_none, const at::Tensor& targets,
                          const c10::intrusive_ptr<Call>& call) {
    const at::Tensor bias = bias_or_none.value_or(at::Tensor());
    ctx->save_for_backward({hidden, weight, bias, targets});
    ctx->saved_data["call"] = at::IValue::make_capsule(call);
    const AutocastScope autocast(hidden.device().type(), call->options.autocast);
    return call->variant->Forward(Flatten(hidden, weight, bias, targets), call->options, call->check, nullptr)
        .reshape(targets.sizes());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad_outputs) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& hidden = saved[0];
    const at::Tensor& bias = saved[2];
    const auto call = c10::static_intrusive_pointer_cast<Call>(ctx->saved_data["call"].toCapsule());
    // Edges are counted over tensors that were given: without a bias index 2 would be another tensor's.
    const Needed needed = {ctx->needs_input_grad(0), ctx->needs_input_grad(1),
                           bias.defined() && ctx->needs_input_grad(2)};
    const AutocastScope autocast(hidden.device().type(), call->options.autocast);
    VariantInputs inputs = Flatten(hidden, saved[1], bias, saved[3]);
    inputs.grad_logp = grad_outputs[0].reshape({-1});

    variable_list gradients(5);  // One for each argument of forward.
    if (c10::GradMode::is_enabled()) {
      variable_list differentiable = DifferentiableBackward(inputs, hidden, needed);
      std::move(differentiable.begin(), differentiable.end(), gradients.begin());
      return gradients;
    }
    Gradients computed = call->variant->Backward(inputs, call->options, {needed.hidden, needed.weight, needed.bias},
                                                 call->check, nullptr);
    if (needed.hidden) gradients[0] = computed.grad_hidden.reshape(hidden.sizes());
    gradients[1] = std::move(computed.grad_weight);
    gradients[2] = std::move(computed.grad_bias);
    return gradients;
  }
};

}  // namespace

at::Tensor LinearLogp(const Variant& variant, const Options& options, const at::Tensor& hidden,
                      const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& targets,
                      const ContinueCheck& check) {
  // An undefined tensor would be taken for an input that has a device; an absent optional is none.
  const std::optional<at::Tensor> bias_or_none = bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
  return LinearLogpFunction::apply(hidden, weight, bias_or_none, targets,
                                   c10::make_intrusive<Call>(&variant, options, check));
}

}  // namespace keval::linear_logp
