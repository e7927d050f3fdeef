// Lines that need calls of their own: P10, C3, C4, C6, C7, C9, C13.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/contract/accuracy.h"
#include "core/contract/agreement.h"
#include "core/contract/evidence.h"
#include "core/linear_logp/autocast.h"
#include "core/linear_logp/autograd_function.h"

namespace keval::contract {
namespace {

using linear_logp::Autocast;
using linear_logp::Dispatch;
using linear_logp::ProductionPath;
using linear_logp::Want;

constexpr int kRepeats = 20;

void CheckP10(const Evidence& evidence, const Arm& arm, Tally* tally) {
  for (const Autocast autocast : {Autocast::kBFloat16, Autocast::kFloat16}) {
    Case c = evidence.maker.Plain(DType::kFloat32, {}, "weight_changed_in_place");
    c.options.autocast = autocast;
    Outcome changed;
    {
      // One scope around both calls, as a worker's loop has it.
      const linear_logp::AutocastScope scope(TorchDeviceType(evidence.maker.device()), autocast);
      if (!Usable(c, arm.Run(c), tally)) continue;
      c.inputs.weight.neg_();
      changed = arm.Run(c);
    }
    Case fresh = c;
    fresh.inputs.weight = c.inputs.weight.clone();
    const Outcome want = arm.Run(fresh);
    if (!Usable(c, changed, tally) || !Usable(fresh, want, tally)) continue;
    tally->Expect(c.Label(), !changed.changed_autocast, "the call changed the thread's autocast state");
    tally->Count(c.Label(), CountDifferentResults(changed, want), "the second call used the weight's old values");
  }
}

void CheckC3(const Evidence& evidence, const Arm& arm, Tally* tally) {
  std::vector<Case> cases;
  for (const DType dtype : evidence.maker.DTypes()) cases.push_back(evidence.maker.Standard(dtype, "plain_bias"));
  cases.push_back(evidence.maker.Standard(DType::kFloat32, "larger"));
  cases.push_back(evidence.maker.Standard(DType::kBFloat16, "larger"));
  cases.push_back(evidence.maker.Standard(DType::kFloat32, "plain_bias"));
  cases.back().options.autocast = Autocast::kBFloat16;
  for (const Case& c : cases) {
    const Outcome first = arm.Run(c);
    if (!Usable(c, first, tally)) continue;
    int different = 0;
    for (int repeat = 1; repeat < kRepeats; ++repeat) {
      const Outcome again = arm.Run(c);
      if (!again.Ran() || CountDifferentResults(first, again) > 0) ++different;
    }
    tally->Measure(c.Label(), different, 0, absl::StrCat("of ", kRepeats, " calls that differ from the first"));
    tally->Expect(c.Label(), first.changed_input.empty(), absl::StrCat("the call wrote to ", first.changed_input));
  }
}

void CheckC4(const Evidence& evidence, const Arm& arm, Tally* tally) {
  const auto expect_zero = [tally](const Case& c, const char* name, const at::Tensor& tensor, at::IntArrayRef sizes) {
    tally->Expect(c.Label(), tensor.defined() && tensor.sizes() == sizes, absl::StrCat(name, " has another shape"));
    if (tensor.defined()) {
      tally->Count(c.Label(), tensor.ne(0).sum().item<std::int64_t>(), absl::StrCat(name, " isn't zero"));
    }
  };
  for (const Sample& sample : evidence.samples) {
    const Case& c = sample.test_case;
    if (c.name != "no_tokens") continue;
    const Outcome& outcome = sample.outcomes[static_cast<std::size_t>(arm.index())];
    if (!Usable(c, outcome, tally)) continue;
    const linear_logp::Gradients& gradients = outcome.gradients;
    tally->Expect(c.Label(), outcome.logp.sizes() == at::IntArrayRef{0}, "logp isn't empty");
    expect_zero(c, "grad_hidden", gradients.grad_hidden, {0, c.Width()});
    expect_zero(c, "grad_weight", gradients.grad_weight, {c.Words(), c.Width()});
    expect_zero(c, "grad_bias", gradients.grad_bias, {c.Words()});
  }
}

void CheckC6(const Evidence& evidence, const Arm& arm, Tally* tally) {
  for (const DType dtype : evidence.maker.DTypes()) {
    for (const bool bias : {true, false}) {
      const Case c = evidence.maker.Plain(dtype, {.bias = bias}, bias ? "wanted" : "wanted_no_bias");
      const linear_logp::ReferenceResult truth = TruthOf(c);
      for (int wanted = 1; wanted < 8; ++wanted) {
        const Want want = {(wanted & 1) != 0, (wanted & 2) != 0, (wanted & 4) != 0};
        const Outcome outcome = arm.Run(c, want);
        if (!Usable(c, outcome, tally)) continue;
        const linear_logp::Gradients& gradients = outcome.gradients;
        tally->Expect(c.Label(),
                      gradients.grad_hidden.defined() == want.hidden &&
                          gradients.grad_weight.defined() == want.weight &&
                          gradients.grad_bias.defined() == (want.bias && bias),
                      "gives other gradients than the wanted ones");
        JudgeAccuracy(c, outcome, truth, arm.description(), tally);
      }
    }
  }
}

void CheckC7(const Evidence& evidence, const Arm& arm, Tally* tally) {
  for (const DType dtype : evidence.maker.DTypes()) {
    for (const char* name : {"strided_upstream", "expanded_upstream"}) {
      const Case c = evidence.maker.Standard(dtype, name);
      Case contiguous = c;
      contiguous.inputs.grad_logp = c.inputs.grad_logp.contiguous();
      const Outcome got = arm.Run(c);
      const Outcome want = arm.Run(contiguous);
      if (!Usable(c, got, tally) || !Usable(contiguous, want, tally)) continue;
      tally->Count(c.Label(), CountDifferentResults(got, want), "differs from the same numbers stored contiguously");
    }
  }
}

// The differentiable operation over the arm's variant, and what it takes: leaves that need gradients.
class Operation {
 public:
  Operation(const Arm& arm, const Case& c) : arm_(arm), case_(c) {
    for (const at::Tensor& tensor : {c.inputs.hidden, c.inputs.weight, c.inputs.bias}) {
      leaves_.push_back(tensor.clone().requires_grad_(true));
    }
  }

  const std::vector<at::Tensor>& leaves() const { return leaves_; }
  at::Tensor Of(const std::vector<at::Tensor>& at, const at::Tensor& targets) const {
    return arm_.Marked([&](const linear_logp::Variant& variant) {
      return linear_logp::LinearLogp(variant, arm_.OptionsOf(case_), at[0], at[1], at[2], targets);
    });
  }
  // sum of grad_logp * logp.
  at::Tensor Loss(const std::vector<at::Tensor>& at) const {
    return (Of(at, case_.inputs.targets) * case_.inputs.grad_logp).sum();
  }
  // Of `output`, made of Of's results, with respect to `at`; `upstream` undefined: of a scalar.
  std::vector<at::Tensor> Gradients(const at::Tensor& output, const std::vector<at::Tensor>& at,
                                    const at::Tensor& upstream = {}, bool create_graph = false) const {
    return arm_.Marked([&](const linear_logp::Variant&) {
      return torch::autograd::grad({output}, at, {upstream}, /*retain_graph=*/create_graph, create_graph);
    });
  }

 private:
  const Arm& arm_;
  const Case& case_;
  std::vector<at::Tensor> leaves_;
};

// Any leading shape: [N, D] as [1, N, 1, D], a slice of rows that are three times as wide.
void JudgeLeadingShape(const Arm& arm, const Case& c, Tally* tally) {
  const c10::AutoGradMode grad_mode(true);
  const Operation operation(arm, c);
  const Outcome want = arm.Run(c);
  if (!Usable(c, want, tally)) return;
  const std::int64_t tokens = c.Tokens();
  std::vector<at::Tensor> at = operation.leaves();
  const at::Tensor wide = at::cat({at::zeros_like(at[0]), at[0], at::zeros_like(at[0])}, 1);
  at[0] = wide.narrow(1, c.Width(), c.Width()).unflatten(0, {1, tokens}).unsqueeze(2);
  const at::Tensor logp = operation.Of(at, c.inputs.targets.reshape({1, tokens, 1}));
  tally->Expect(c.Label(), logp.sizes() == at::IntArrayRef({1, tokens, 1}), "logp has another leading shape");
  const auto gradients = operation.Gradients(logp, operation.leaves(), c.inputs.grad_logp.reshape({1, tokens, 1}));
  tally->Expect(c.Label(),
                SameBits(logp.reshape({tokens}).to(at::kCPU), want.logp) &&
                    SameBits(gradients[0].to(at::kCPU), want.gradients.grad_hidden) &&
                    SameBits(gradients[1].to(at::kCPU), want.gradients.grad_weight) &&
                    SameBits(gradients[2].to(at::kCPU), want.gradients.grad_bias),
                "differs between leading shapes [N] and [1, N, 1]");
}

// Directional derivatives by central differences against `gradients`, for each leaf and along one direction each.
void JudgeDifferences(const std::string& label, const std::vector<at::Tensor>& leaves,
                      const std::vector<at::Tensor>& gradients,
                      const std::function<double(const std::vector<at::Tensor>&)>& value, Tally* tally) {
  constexpr double kStep = 1e-5;
  // The second difference's error, step^2 times the third derivative, and its rounding, 1e-16 / step: both below 1e-9.
  constexpr double kLimit = 1e-7;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const at::Tensor direction = leaves[i].detach().sin().add(0.25);
    const auto shifted = [&](double step) {
      std::vector<at::Tensor> at = leaves;
      at[i] = (leaves[i].detach() + direction * step).requires_grad_(true);
      return value(at);
    };
    const double difference = (shifted(kStep) - shifted(-kStep)) / (2 * kStep);
    const auto derivative = (gradients[i] * direction).sum().item<double>();
    tally->Measure(label, std::abs(difference - derivative) / std::max(1.0, std::abs(difference)), kLimit,
                   absl::StrCat("relative to the finite difference, input ", i));
  }
}

void CheckC9OnCpu(const Evidence& evidence, const Arm& arm, Tally* tally) {
  const c10::AutoGradMode grad_mode(true);
  const Case c = evidence.maker.Plain(
      DType::kFloat64, {.num_tokens = 6, .hidden_size = 4, .vocab_size = 9, .chunk_tokens = 2}, "first_order");
  if (!Usable(c, arm.Run(c), tally)) return;
  const Operation operation(arm, c);
  const auto& leaves = operation.leaves();
  const std::vector<at::Tensor> first = operation.Gradients(operation.Loss(leaves), leaves);
  JudgeDifferences(
      c.Label(), leaves, first, [&](const auto& at) { return operation.Loss(at).template item<double>(); }, tally);

  // A scalar made of the first gradients, and its own gradients.
  const auto squared = [&](const std::vector<at::Tensor>& at) {
    const std::vector<at::Tensor> gradients = operation.Gradients(operation.Loss(at), at, {}, /*create_graph=*/true);
    at::Tensor sum = gradients[0].square().sum();
    for (std::size_t i = 1; i < gradients.size(); ++i) sum = sum + gradients[i].square().sum();
    return sum;
  };
  const std::vector<at::Tensor> second = operation.Gradients(squared(leaves), leaves);
  JudgeDifferences(
      "float64/second_order", leaves, second, [&](const auto& at) { return squared(at).template item<double>(); },
      tally);
}

void CheckC7AndLeadingShapes(const Evidence& evidence, const Arm& arm, Tally* tally) {
  CheckC7(evidence, arm, tally);
  for (const DType dtype : evidence.maker.DTypes()) {
    JudgeLeadingShape(arm, evidence.maker.Plain(dtype, {}, "leading_shape"), tally);
  }
}

void CheckC9(const Evidence& evidence, const Arm& arm, Tally* tally) {
  if (evidence.maker.device().cuda) return tally->Note("float64 is accepted on a CPU only");
  CheckC9OnCpu(evidence, arm, tally);
}

void JudgeDispatch(const Case& c, const Arm& arm, const Dispatch& dispatch, Tally* tally) {
  tally->Expect(c.Label(), !dispatch.variant.empty() && !dispatch.path.empty() && !dispatch.reason.empty(),
                "the dispatch decision lacks variant, path or reason");
  tally->Expect(c.Label(), dispatch.variant == arm.description().name || dispatch.fallback,
                absl::StrCat("ran as ", dispatch.variant, " without calling it a fallback"));
}

void CheckC13(const Evidence& evidence, const Arm& arm, Tally* tally) {
  for (const Sample& sample : evidence.samples) {
    const Case& c = sample.test_case;
    const Outcome& outcome = sample.outcomes[static_cast<std::size_t>(arm.index())];
    if (!outcome.declined.empty()) {
      tally->Expect(c.Label(), outcome.declined.find("gives no reason") == std::string::npos,
                    "declines without a reason");
    }
    if (!Usable(c, outcome, tally)) continue;
    JudgeDispatch(c, arm, outcome.forward_dispatch, tally);
    JudgeDispatch(c, arm, outcome.backward_dispatch, tally);
    if (c.Tokens() == 0) continue;  // No operator ran that could prove a path.
    const std::int64_t in_place = CountOps(outcome.backward_ops, "aten::addmm_", {c.Words(), c.Width()});
    if (arm.Claims(ProductionPath::kAddmm)) {
      tally->Expect(c.Label(), outcome.backward_dispatch.fallback == (in_place == 0),
                    absl::StrCat("reports \"", outcome.backward_dispatch.path, "\", but the operators that ran say ",
                                 in_place == 0 ? "matmul and add" : "addmm_"));
    }
    if (c.name == "plain_bias") {
      tally->Note(absl::StrCat(c.Label(), ": ", outcome.backward_dispatch.path, " (", outcome.backward_dispatch.reason,
                               "), ", outcome.backward_ops.size(), " operators"));
    }
  }
}

constexpr Line kLines[] = {
    {"P10", CheckP10}, {"C3", CheckC3},  {"C4", CheckC4}, {"C6", CheckC6}, {"C7", CheckC7AndLeadingShapes},
    {"C9", CheckC9},   {"C13", CheckC13}};

}  // namespace

absl::Span<const Line> BehaviourLines() { return kLines; }

}  // namespace keval::contract
