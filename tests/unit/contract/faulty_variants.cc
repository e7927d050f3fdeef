#include "tests/unit/contract/faulty_variants.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <limits>
#include <utility>

#include "core/linear_logp/autocast.h"

namespace keval::contract {
namespace {

using linear_logp::Dispatch;
using linear_logp::Gradients;
using linear_logp::Options;
using linear_logp::ProductionPath;
using linear_logp::Variant;
using linear_logp::VariantInputs;
using linear_logp::Want;

class FaultyVariant final : public Variant {
 public:
  explicit FaultyVariant(Fault fault)
      : fault_(std::move(fault)), inner_(linear_logp::FindVariant(fault_.inner).value()) {}

  linear_logp::VariantDescription Describe() const override {
    linear_logp::VariantDescription description = inner_->Describe();
    description.name = fault_.name;
    if (fault_.describe) fault_.describe(&description);
    return description;
  }
  linear_logp::Support Supports(const linear_logp::Problem& problem, const Options& options,
                                const linear_logp::Device& device) const override {
    if (fault_.declines) return {.supported = false, .reason = "planted"};
    return inner_->Supports(problem, options, device);
  }
  std::int64_t ScratchBytes(const linear_logp::Problem& problem, const Options& options, Want want) const override {
    return inner_->ScratchBytes(problem, options, want);
  }
  at::Tensor Forward(const VariantInputs& inputs, const Options& options, const linear_logp::ContinueCheck& check,
                     Dispatch* dispatch) const override {
    VariantInputs changed = inputs;
    Options changed_options = options;
    Want want;
    if (fault_.before) fault_.before(&changed, &changed_options, &want);
    at::Tensor logp = inner_->Forward(changed, changed_options, check, dispatch);
    if (fault_.after_forward) fault_.after_forward(changed, &logp);
    Rename(dispatch);
    return logp;
  }
  Gradients Backward(const VariantInputs& inputs, const Options& options, Want want,
                     const linear_logp::ContinueCheck& check, Dispatch* dispatch) const override {
    VariantInputs changed = inputs;
    Options changed_options = options;
    if (fault_.before) fault_.before(&changed, &changed_options, &want);
    Gradients gradients = inner_->Backward(changed, changed_options, want, check, dispatch);
    if (fault_.after_backward) fault_.after_backward(changed, changed_options, &gradients);
    Rename(dispatch);
    return gradients;
  }

 private:
  void Rename(Dispatch* dispatch) const {
    if (dispatch == nullptr) return;
    dispatch->variant = fault_.name;
    if (fault_.dispatch) fault_.dispatch(dispatch);
  }

  Fault fault_;
  const Variant* inner_;
};

bool Is16Bit(const at::Tensor& tensor) { return tensor.element_size() == 2; }

at::Tensor LogitsOf(const VariantInputs& in) {
  at::Tensor logits = at::matmul(in.hidden.to(at::kFloat), in.weight.to(at::kFloat).t());
  return in.bias.defined() ? logits + in.bias.to(at::kFloat) : logits;
}

// dz of these probabilities.
at::Tensor DzOf(const VariantInputs& in, const at::Tensor& p) {
  const at::Tensor hit = at::zeros(p.sizes(), p.options()).scatter_(1, in.targets.unsqueeze(1), 1.0);
  return (hit - p) * in.grad_logp.to(p.scalar_type()).unsqueeze(1);
}

void SetWeight(const at::Tensor& value, Gradients* gradients) {
  if (gradients->grad_weight.defined()) gradients->grad_weight = value.to(gradients->grad_weight.scalar_type());
}

bool ZeroUpstream(const VariantInputs& in) { return in.grad_logp.numel() > 0 && in.grad_logp.eq(0).all().item<bool>(); }

// Keeps each weight as it was when first seen, as a cache without invalidation does.
std::function<void(VariantInputs*, Options*, Want*)> CachedWeights() {
  auto cache = std::make_shared<std::vector<std::pair<at::Tensor, at::Tensor>>>();
  return [cache](VariantInputs* in, Options* options, Want*) {
    if (options->autocast == linear_logp::Autocast::kNone) return;
    for (const auto& [weight, copy] : *cache) {
      if (weight.is_same(in->weight)) {
        in->weight = copy;
        return;
      }
    }
    cache->emplace_back(in->weight, in->weight.clone());
  };
}

std::vector<Fault> MakeFaults() {
  std::vector<Fault> faults;
  const auto add = [&faults](Fault fault) { faults.push_back(std::move(fault)); };

  add({.name = "chunks_twice_as_long", .row = "P1", .before = [](VariantInputs*, Options* options, Want*) {
         options->chunk_elems *= 2;
       }});
  add({.name = "lies_about_chunks", .row = "P1", .dispatch = [](Dispatch* dispatch) { dispatch->chunks += 1; }});
  add({.name = "multiplies_in_16_bits", .row = "P2", .after_backward = [](const auto& in, const auto&, Gradients*) {
         if (Is16Bit(in.hidden)) at::mm(in.hidden, in.weight.t());
       }});
  add({.name = "dz_from_saved_logsumexp", .row = "P3", .after_backward = [](const auto& in, const auto&, Gradients* g) {
         if (in.hidden.scalar_type() != at::kFloat) return;
         const at::Tensor logits = LogitsOf(in);
         const at::Tensor p = (logits - at::logsumexp(logits, at::IntArrayRef{1}, true)).exp();
         SetWeight(at::matmul(DzOf(in, p).t(), in.hidden), g);
       }});
  add({.name = "grad_weight_is_nan", .row = "P3", .after_backward = [](const auto&, const auto&, Gradients* g) {
         if (g->grad_weight.defined()) g->grad_weight.fill_(std::numeric_limits<double>::quiet_NaN());
       }});
  // What assigning the first chunk into the table gives for an upstream of zeros.
  add({.name = "table_seeded_by_assignment", .row = "P4", .after_backward = [](const auto& in, const auto&, auto* g) {
         if (ZeroUpstream(in) && g->grad_weight.defined()) g->grad_weight.neg_();
       }});
  add({.name = "base_by_addmm", .row = "P5", .arm = "base", .describe = [](auto* description) {
         description->production_path = ProductionPath::kMatmulAdd;
       }});
  add({.name = "candidate_by_matmul_add",
       .row = "P6",
       .inner = "portable_matmul_add",
       .describe = [](auto* description) { description->production_path = ProductionPath::kAddmm; }});
  add({.name = "another_grad_bias_order", .row = "P6", .after_backward = [](const auto&, const auto&, Gradients* g) {
         if (g->grad_bias.defined()) g->grad_bias = g->grad_bias.flip(0).flip(0);
       }});
  add({.name = "float32_under_autocast",
       .row = "P7",
       .after_backward = [](const auto& in, const Options& options, Gradients* g) {
         if (options.autocast == linear_logp::Autocast::kNone || in.hidden.scalar_type() == at::kDouble) return;
         const linear_logp::AutocastScope off(in.hidden.device().type(), linear_logp::Autocast::kNone);
         SetWeight(at::matmul(DzOf(in, at::softmax(LogitsOf(in), 1)).t(), in.hidden.to(at::kFloat)), g);
       }});
  add({.name = "builds_unwanted_operands", .row = "P8", .after_backward = [](const auto& in, const auto&, Gradients*) {
         at::zeros(in.weight.sizes(), in.weight.options().dtype(at::kFloat));
       }});
  add({.name = "makes_unwanted_gradients", .row = "P8", .before = [](VariantInputs*, Options*, Want* want) {
         *want = {};
       }});
  add({.name = "gradients_stay_float32", .row = "P9", .before = [](VariantInputs*, Options* options, Want*) {
         options->grad_dtype = linear_logp::GradDtype::kFloat32;
       }});
  add({.name = "float32_not_given_on_request", .row = "P9", .before = [](VariantInputs*, Options* options, Want*) {
         options->grad_dtype = linear_logp::GradDtype::kInput;
       }});
  add({.name = "caches_weights", .row = "P10", .before = CachedWeights()});
  add({.name = "leaves_autocast_off", .row = "P10", .after_backward = [](const auto& in, const auto&, Gradients*) {
         at::autocast::set_autocast_enabled(in.hidden.device().type(), false);
       }});

  add({.name = "grad_weight_a_little_large", .row = "C1", .after_backward = [](const auto&, const auto&, Gradients* g) {
         if (g->grad_weight.defined()) g->grad_weight.mul_(1 + 1e-4);
       }});
  add({.name = "logp_off_by_a_little", .row = "C2", .after_forward = [](const auto&, at::Tensor* logp) {
         logp->sub_(1e-4);
       }});
  add({.name = "drops_the_last_token", .row = "C2", .after_backward = [](const auto& in, const auto&, Gradients* g) {
         if (in.hidden.size(0) > 1 && g->grad_hidden.defined()) g->grad_hidden.select(0, -1).zero_();
       }});
  add({.name = "forgets_all_chunks_but_the_last",
       .row = "C2",
       .after_backward = [](const auto& in, const auto&, Gradients* g) {
         const std::int64_t tokens = in.hidden.size(0);
         if (tokens < 6 || in.hidden.scalar_type() != at::kFloat) return;
         const at::Tensor dz = DzOf(in, at::softmax(LogitsOf(in), 1));
         SetWeight(at::matmul(dz.slice(0, 5).t(), in.hidden.slice(0, 5)), g);
       }});
  add({.name = "padded_vocabulary", .row = "C2", .after_forward = [](const auto& in, at::Tensor* logp) {
         if (in.hidden.scalar_type() != at::kFloat || in.hidden.size(0) == 0) return;
         const at::Tensor logits = LogitsOf(in);
         const at::Tensor padded = at::cat({logits, at::zeros({logits.size(0), 3}, logits.options())}, 1);
         logp->copy_(logits.gather(1, in.targets.unsqueeze(1)).squeeze(1) - at::logsumexp(padded, at::IntArrayRef{1}));
       }});
  add({.name = "declines_everything", .row = "C2", .declines = true});
  add({.name = "differs_from_call_to_call",
       .row = "C3",
       .after_backward = [calls = std::make_shared<int>(0)](const auto&, const auto&, Gradients* g) {
         if (++*calls % 7 == 0 && g->grad_weight.defined()) g->grad_weight.mul_(1 + 1e-6);
       }});
  add({.name = "writes_to_its_input", .row = "C3", .after_backward = [](const auto& in, const auto&, Gradients*) {
         if (in.hidden.size(0) > 0) at::Tensor(in.hidden).select(0, 0).zero_();
       }});
  add({.name = "fails_on_no_tokens", .row = "C4", .after_forward = [](const auto& in, at::Tensor*) {
         TORCH_CHECK(in.hidden.size(0) > 0, "invalid configuration argument");
       }});
  add({.name = "leaves_grad_weight_unset",
       .row = "C4",
       .after_backward = [](const auto& in, const auto&, Gradients* g) {
         if (in.hidden.size(0) == 0 && g->grad_weight.defined()) g->grad_weight.fill_(3);
       }});
  add({.name = "negative_zeros_of_grad_bias", .row = "C5", .after_backward = [](const auto& in, const auto&, auto* g) {
         if (ZeroUpstream(in) && g->grad_bias.defined()) g->grad_bias.neg_();
       }});
  add({.name = "ignores_what_is_wanted", .row = "C6", .before = [](VariantInputs*, Options*, Want* want) {
         *want = {};
       }});
  // One for each dtype: the line holds in all of them.
  for (const auto& [name, type] : {std::pair("float32", at::kFloat), std::pair("bfloat16", at::kBFloat16),
                                   std::pair("float16", at::kHalf), std::pair("float64", at::kDouble)}) {
    add({.name = std::string("ignores_strides_in_") + name,
         .row = "C7",
         .before = [type = type](VariantInputs* in, Options*, Want*) {
           const at::Tensor& upstream = in->grad_logp;
           if (in->hidden.scalar_type() == type && upstream.defined() && upstream.dim() == 1 &&
               upstream.stride(0) > 1) {
             in->grad_logp = upstream.as_strided(upstream.sizes(), {1});
           }
         }});
  }
  add({.name = "softmax_without_the_maximum", .row = "C8", .after_forward = [](const auto& in, at::Tensor* logp) {
         if (in.hidden.scalar_type() != at::kFloat || in.hidden.size(0) == 0) return;
         const at::Tensor logits = LogitsOf(in);
         logp->copy_(logits.gather(1, in.targets.unsqueeze(1)).squeeze(1) - logits.exp().sum(1).log());
       }});
  add({.name = "positive_logp", .row = "C8", .after_forward = [](const auto&, at::Tensor* logp) { logp->neg_(); }});
  add({.name = "float64_gradients_off", .row = "C9", .after_backward = [](const auto&, const auto&, Gradients* g) {
         if (g->grad_hidden.defined() && g->grad_hidden.scalar_type() == at::kDouble) g->grad_hidden.mul_(1 + 1e-5);
       }});
  add({.name = "swallows_nan", .row = "C10", .after_forward = [](const auto&, at::Tensor* logp) {
         logp->nan_to_num_(0);
       }});
  add({.name = "swallows_nan_in_grad_weight",
       .row = "C10",
       .after_backward = [](const auto&, const auto&, Gradients* g) {
         if (g->grad_weight.defined()) g->grad_weight.nan_to_num_(0);
       }});
  add({.name = "spreads_nan_to_other_tokens", .row = "C10", .after_forward = [](const auto&, at::Tensor* logp) {
         if (logp->isnan().any().item<bool>()) logp->fill_(std::numeric_limits<double>::quiet_NaN());
       }});
  add({.name = "masks_by_a_large_number", .row = "C11", .before = [](VariantInputs* in, Options*, Want*) {
         if (in->bias.defined()) in->bias = in->bias.clamp_min(-60000);
       }});
  add({.name = "calls_its_fallback_no_fallback", .row = "C13", .dispatch = [](Dispatch* dispatch) {
         dispatch->fallback = false;
       }});
  add({.name = "gives_no_reason", .row = "C13", .dispatch = [](Dispatch* dispatch) { dispatch->reason.clear(); }});
  add({.name = "rounds_p", .row = "C14", .after_backward = [](const auto& in, const auto&, Gradients* g) {
         if (in.hidden.scalar_type() != at::kFloat || !g->grad_hidden.defined() || in.hidden.size(0) == 0) return;
         const at::Tensor p = at::softmax(LogitsOf(in), 1).to(at::kBFloat16).to(at::kFloat);
         g->grad_hidden.copy_(at::matmul(DzOf(in, p), in.weight));
       }});
  add({.name = "claims_an_exact_target",
       .row = "C14",
       .after_backward =
           [](const auto&, const auto&, Gradients* g) {
             // Less than the rounding that C2 allows where a target is nearly certain, more than 1e-3 of the row.
             if (g->grad_hidden.defined() && g->grad_hidden.scalar_type() == at::kFloat) g->grad_hidden.mul_(1 + 2e-3);
           },
       .describe = [](auto* description) { description->exact_target = true; }});
  return faults;
}

}  // namespace

std::unique_ptr<Variant> MakeFaulty(const Fault& fault) { return std::make_unique<FaultyVariant>(fault); }

const std::vector<Fault>& Faults() {
  static const auto& faults = *new std::vector<Fault>(MakeFaults());
  return faults;
}

}  // namespace keval::contract
