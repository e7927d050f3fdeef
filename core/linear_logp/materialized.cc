// materialized: the full [N, V] logits at once. The plain reading of the formula, for comparison; its memory grows with
// N x V.
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <string>

#include "core/linear_logp/builtin_variants.h"
#include "core/linear_logp/portable.h"

namespace keval::linear_logp {
namespace {

class Materialized final : public Variant {
 public:
  VariantDescription Describe() const override {
    return {.name = "materialized",
            .description = "all logits at once, any device; the plain reference",
            .cpu = true,
            .cuda = true};
  }

  Support Supports(const Problem& problem, const Options& /*options*/, const Device& device) const override {
    return SupportsAtenVariant(problem, device);
  }

  std::int64_t ScratchBytes(const Problem& problem, const Options& options, Want want) const override {
    return AtenScratchBytes(problem, options, want, problem.num_tokens);
  }

  at::Tensor Forward(const VariantInputs& inputs, const Options& /*options*/, const ContinueCheck& check,
                     Dispatch* dispatch) const override {
    const at::NoGradGuard no_grad;
    Name(dispatch, inputs);
    if (inputs.hidden.size(0) == 0) return NoTokens(inputs.hidden, {0});
    ThrowIfStopped(check);
    return TargetLogp(FullLogits(inputs, GemmOperand(inputs.hidden), GemmOperand(inputs.weight)), inputs.targets);
  }

  Gradients Backward(const VariantInputs& inputs, const Options& options, Want want, const ContinueCheck& check,
                     Dispatch* dispatch) const override {
    const at::NoGradGuard no_grad;
    Name(dispatch, inputs);
    const at::ScalarType type = GradientType(inputs.hidden, options);
    const bool want_bias = want.bias && inputs.bias.defined();
    Gradients gradients;
    if (inputs.hidden.size(0) == 0) {  // C4: no product over an empty dimension.
      if (want.hidden) gradients.grad_hidden = NoTokens(inputs.hidden, inputs.hidden.sizes()).to(type);
      if (want.weight) gradients.grad_weight = NoTokens(inputs.weight, inputs.weight.sizes()).to(type);
      if (want_bias) gradients.grad_bias = NoTokens(inputs.bias, inputs.bias.sizes()).to(type);
      return gradients;
    }
    if (!want.hidden && !want.weight && !want_bias) return gradients;
    ThrowIfStopped(check);
    const at::Tensor hidden = GemmOperand(inputs.hidden);
    const at::Tensor weight = GemmOperand(inputs.weight);
    const at::Tensor dz = LogitsGradient(FullLogits(inputs, hidden, weight), inputs.targets, inputs.grad_logp);
    if (want.hidden) gradients.grad_hidden = at::matmul(dz, weight).to(type);
    if (want.weight) gradients.grad_weight = at::matmul(dz.t(), hidden).to(type);
    if (want_bias) gradients.grad_bias = dz.sum(0).to(type);
    return gradients;
  }

 private:
  static at::Tensor NoTokens(const at::Tensor& like, at::IntArrayRef sizes) {
    return at::zeros(sizes, like.options().dtype(AccumulationType(like)));
  }

  static at::Tensor FullLogits(const VariantInputs& inputs, const at::Tensor& hidden, const at::Tensor& weight) {
    return Logits(hidden, weight, inputs.bias.defined() ? GemmOperand(inputs.bias) : inputs.bias);
  }

  static void Name(Dispatch* dispatch, const VariantInputs& inputs) {
    if (dispatch == nullptr) return;
    const std::int64_t tokens = inputs.hidden.size(0);
    dispatch->variant = "materialized";
    dispatch->path = "full logits";
    dispatch->reason = "the variant's only path";
    dispatch->fallback = false;
    dispatch->chunk_tokens = tokens > 0 ? tokens : 1;
    dispatch->chunks = tokens > 0 ? 1 : 0;
  }
};

}  // namespace

std::unique_ptr<Variant> MakeMaterialized() { return std::make_unique<Materialized>(); }

}  // namespace keval::linear_logp
