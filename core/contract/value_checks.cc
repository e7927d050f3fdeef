// Lines that are judged by the values of the gathered samples: P9, C1, C2, C5, C8, C10, C11, C14.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/number.h"
#include "core/contract/accuracy.h"
#include "core/contract/agreement.h"
#include "core/contract/evidence.h"
#include "core/linear_logp/host_tensor.h"

namespace keval::contract {
namespace {

using linear_logp::Autocast;
using linear_logp::GradDtype;
using linear_logp::Gradients;
using linear_logp::ReferenceResult;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct NamedGradient {
  const char* name;
  at::Tensor Gradients::*tensor;
};
constexpr NamedGradient kGradients[] = {{"grad_hidden", &Gradients::grad_hidden},
                                        {"grad_weight", &Gradients::grad_weight},
                                        {"grad_bias", &Gradients::grad_bias}};

template <typename Judge>
void ForEachSample(const Evidence& evidence, const Arm& arm, Tally* tally, const Judge& judge) {
  for (const Sample& sample : evidence.samples) {
    const Outcome& outcome = sample.outcomes[static_cast<std::size_t>(arm.index())];
    if (Usable(sample.test_case, outcome, tally)) judge(sample, outcome);
  }
}

// A NaN is worse than every number, and stays.
double Worse(double a, double b) { return std::isnan(a) || a > b ? a : b; }

bool IsOffset(const Case& c) { return c.name == "common_offset"; }

void CheckP9(const Evidence& evidence, const Arm& arm, Tally* tally) {
  ForEachSample(evidence, arm, tally, [&](const Sample& sample, const Outcome& outcome) {
    const Case& c = sample.test_case;
    const bool wide = c.problem.dtype == DType::kFloat64;
    at::ScalarType wanted = linear_logp::TorchType(c.problem.dtype);
    if (!wide && c.options.grad_dtype == GradDtype::kFloat32) wanted = at::kFloat;
    const at::Tensor inputs[] = {c.inputs.hidden, c.inputs.weight, c.inputs.bias};
    for (std::size_t i = 0; i < std::size(kGradients); ++i) {
      const at::Tensor& gradient = outcome.gradients.*kGradients[i].tensor;
      if (!gradient.defined() || !inputs[i].defined()) continue;  // C6 judges which are there.
      tally->Expect(c.Label(), gradient.scalar_type() == wanted && gradient.sizes() == inputs[i].sizes(),
                    absl::StrCat(kGradients[i].name, " is ", c10::toString(gradient.scalar_type()), ", not ",
                                 c10::toString(wanted), ", or has another shape than its input"));
    }
    tally->Expect(c.Label(), outcome.logp.scalar_type() == (wide ? at::kDouble : at::kFloat), "logp has another dtype");
  });
}

// Where the targets are nearly certain, the last bits of p decide dz: only the production pair, whose dz is the same,
// can be compared there by C1's plain distances. C2 and C14 judge the others fairly.
bool Comparable(const Evidence& evidence, const Case& c) {
  if (c.options.autocast != Autocast::kNone) return false;  // P7's.
  return evidence.IsProductionPair() ||
         (c.name != "nearly_certain_target" && c.name != "saturated_target" && !IsOffset(c));
}

void CheckC1(const Evidence& evidence, const Arm& /*arm*/, Tally* tally) {
  for (const Arm& arm : evidence.arms) {
    if (arm.description().epsilon > 0) {
      return tally->Note(absl::StrCat(arm.description().name, " declares its own epsilon, ",
                                      DoubleText(arm.description().epsilon), ": each arm is judged by C2"));
    }
  }
  Agreement worst;
  for (const Sample& sample : evidence.samples) {
    const Case& c = sample.test_case;
    if (!Comparable(evidence, c)) continue;
    if (!Usable(c, sample.outcomes[0], tally) || !Usable(c, sample.outcomes[1], tally)) continue;
    for (const NamedGradient& gradient : kGradients) {
      const at::Tensor& base = sample.outcomes[0].gradients.*gradient.tensor;
      const Agreement agreement = CompareC1(base, sample.outcomes[1].gradients.*gradient.tensor);
      const std::string detail = absl::StrCat(gradient.name, agreement.why.empty() ? "" : ": ", agreement.why);
      tally->Measure(c.Label(), agreement.worst_ratio, 1, absl::StrCat(detail, ", in units of the elementwise limit"));
      if (base.defined() && (base.scalar_type() == at::kFloat || base.scalar_type() == at::kDouble)) {
        tally->Measure(c.Label(), agreement.frobenius, 1e-6, absl::StrCat(detail, ", relative Frobenius distance"));
      }
      tally->Expect(c.Label(), agreement.ok, detail);
      worst.max_abs = std::max(worst.max_abs, agreement.max_abs);
      worst.max_rel = std::max(worst.max_rel, agreement.max_rel);
      worst.max_ulp = std::max(worst.max_ulp, agreement.max_ulp);
    }
  }
  tally->Note(absl::StrCat("over all cases: max abs ", DoubleText(worst.max_abs), ", max rel ",
                           DoubleText(worst.max_rel), ", max ULP ", worst.max_ulp));
}

void CheckC2(const Evidence& evidence, const Arm& arm, Tally* tally) {
  ForEachSample(evidence, arm, tally, [&](const Sample& sample, const Outcome& outcome) {
    JudgeAccuracy(sample.test_case, outcome, sample.truth, arm.description(), tally);
  });
  if (arm.description().epsilon > 0) {
    tally->Note(absl::StrCat("the variant's own epsilon, ", DoubleText(arm.description().epsilon)));
  }
}

void CheckC5(const Evidence& evidence, const Arm& arm, Tally* tally) {
  ForEachSample(evidence, arm, tally, [&](const Sample& sample, const Outcome& outcome) {
    const Case& c = sample.test_case;
    if (c.name != "zero_upstream") return;
    for (const NamedGradient& gradient : kGradients) {
      const at::Tensor& got = outcome.gradients.*gradient.tensor;
      if (!got.defined()) continue;
      tally->Count(c.Label(), got.ne(0).sum().item<std::int64_t>(), absl::StrCat(gradient.name, " isn't zero"));
      const Outcome& base = sample.outcomes[0];
      if (arm.index() == 0 || !base.Ran()) continue;
      tally->Count(c.Label(), CountDifferent(got, base.gradients.*gradient.tensor),
                   absl::StrCat(gradient.name, " has other sign bits than base's"));
    }
  });
}

void CheckC8(const Evidence& evidence, const Arm& arm, Tally* tally) {
  ForEachSample(evidence, arm, tally, [&](const Sample& sample, const Outcome& outcome) {
    const Case& c = sample.test_case;
    if (c.options.autocast != Autocast::kNone) return;
    double largest = -kInfinity;
    double worst_error = 0;
    const std::vector<double> got = Values(outcome.logp);
    for (std::size_t token = 0; token < std::min(got.size(), sample.truth.logp.size()); ++token) {
      largest = Worse(largest, got[token]);
      worst_error = Worse(worst_error, std::abs(got[token] - sample.truth.logp[token]));
    }
    if (got.empty()) return;
    tally->Expect(c.Label(), largest <= 4 * LogitUlp(c, sample.truth.max_abs_logit),
                  absl::StrCat("logp reaches ", DoubleText(largest)));
    if (IsOffset(c)) {
      tally->Measure(c.Label(), worst_error, LogpLimit(c, arm.description(), sample.truth),
                     "logp against the value without rounding");
    }
  });
}

// Where the right value is finite the variant's must be, and a NaN or an infinity must be met as such.
void ExpectSamePattern(const Case& c, const char* name, const at::Tensor& got, const std::vector<double>& want,
                       Tally* tally) {
  const std::vector<double> values = Values(got);
  bool same = values.size() == want.size();
  for (std::size_t i = 0; same && i < want.size(); ++i) {
    same = std::isnan(values[i]) == std::isnan(want[i]) && std::isinf(values[i]) == std::isinf(want[i]);
  }
  tally->Expect(c.Label(), same, absl::StrCat(name, " is non-finite elsewhere than the formula's"));
}

void CheckC10(const Evidence& evidence, const Arm& arm, Tally* tally) {
  constexpr std::int64_t kToken = 7;
  for (const DType dtype : evidence.maker.DTypes()) {
    const Case clean = evidence.maker.Plain(dtype, {}, "finite");
    const Outcome want = arm.Run(clean);
    if (!Usable(clean, want, tally)) continue;
    for (const auto& [value, upstream_zero, name] : {std::tuple{kNan, false, "nan_in_hidden"},
                                                     {kNan, true, "nan_in_hidden_of_unused_token"},
                                                     {kInfinity, false, "inf_in_hidden"}}) {
      Case c = evidence.maker.Plain(dtype, {}, name);
      c.inputs.hidden.select(0, kToken).select(0, 2).fill_(value);
      if (upstream_zero) c.inputs.grad_logp.select(0, kToken).fill_(0);
      const Outcome got = arm.Run(c);
      if (!Usable(c, got, tally)) continue;
      tally->Expect(c.Label(), !std::isfinite(Values(got.logp)[kToken]), "that token's logp is finite");
      const auto others_match = [&](const at::Tensor& a, const at::Tensor& b) {
        const std::int64_t after = c.Tokens() - kToken - 1;
        return SameBits(a.narrow(0, 0, kToken), b.narrow(0, 0, kToken)) &&
               SameBits(a.narrow(0, kToken + 1, after), b.narrow(0, kToken + 1, after));
      };
      tally->Expect(c.Label(), others_match(got.logp, want.logp), "another token's logp changed");
      tally->Expect(c.Label(), others_match(got.gradients.grad_hidden, want.gradients.grad_hidden),
                    "another token's grad_hidden changed");
      const ReferenceResult truth = TruthOf(c);
      ExpectSamePattern(c, "grad_weight", got.gradients.grad_weight, truth.grad_weight, tally);
      ExpectSamePattern(c, "grad_bias", got.gradients.grad_bias, truth.grad_bias, tally);
    }
  }
}

// Words 1, 5, 9, ... are masked in cases.cc; a token whose target is one of them makes an exception for it.
void JudgeMaskedWords(const Case& c, const Outcome& outcome, Tally* tally) {
  for (const NamedGradient& gradient : kGradients) {
    tally->Expect(c.Label(), (outcome.gradients.*gradient.tensor).isfinite().all().item<bool>(),
                  absl::StrCat(gradient.name, " isn't finite"));
  }
  const std::vector<double> logp = Values(outcome.logp);
  const std::vector<double> grad_bias = Values(outcome.gradients.grad_bias);
  const std::vector<double> targets = Values(c.inputs.targets);
  const std::vector<double> upstream = Values(c.inputs.grad_logp);
  const std::vector<double> bias = Values(c.inputs.bias);
  std::vector<double> of_targets(bias.size(), 0);
  for (std::size_t token = 0; token < targets.size(); ++token) {
    const auto target = static_cast<std::size_t>(targets[token]);
    if (bias[target] != -kInfinity) continue;
    of_targets[target] += upstream[token];
    tally->Expect(c.Label(), logp[token] == -kInfinity,
                  absl::StrCat("logp[", token, "] is ", DoubleText(logp[token]), " though its target is masked"));
  }
  const double unit = RoundingUnit(outcome.gradients.grad_bias.scalar_type());
  for (std::size_t word = 0; word < bias.size(); ++word) {
    if (bias[word] != -kInfinity) continue;
    const double error = std::abs(grad_bias[word] - of_targets[word]);
    tally->Expect(c.Label(), error <= 2 * unit * std::abs(of_targets[word]),
                  absl::StrCat("grad_bias of masked word ", word, " is ", DoubleText(grad_bias[word])));
    if (of_targets[word] != 0) continue;
    const at::Tensor row = outcome.gradients.grad_weight.select(0, static_cast<std::int64_t>(word));
    tally->Expect(c.Label(), row.eq(0).all().item<bool>(),
                  absl::StrCat("grad_weight of masked word ", word, " isn't zero"));
  }
}

void CheckC11(const Evidence& evidence, const Arm& arm, Tally* tally) {
  ForEachSample(evidence, arm, tally, [&](const Sample& sample, const Outcome& outcome) {
    const std::string& name = sample.test_case.name;
    if (name != "masked_words" && name != "masked_target") return;
    JudgeMaskedWords(sample.test_case, outcome, tally);
  });
  Case c = evidence.maker.Plain(DType::kFloat32, {}, "every_word_masked");
  c.inputs.bias.fill_(-kInfinity);
  const Outcome outcome = arm.Run(c);
  if (Usable(c, outcome, tally)) {
    tally->Expect(c.Label(), outcome.logp.isnan().all().item<bool>(), "logp isn't NaN");
  }
}

void CheckC14(const Evidence& evidence, const Arm& arm, Tally* tally) {
  ForEachSample(evidence, arm, tally, [&](const Sample& sample, const Outcome& outcome) {
    if (sample.test_case.options.autocast != Autocast::kNone) return;
    JudgeRows(sample.test_case, outcome, sample.truth, arm.description(), tally);
  });
  if (!arm.description().exact_target) tally->Note("the variant doesn't declare exact_target");
}

constexpr Line kLines[] = {{"P9", CheckP9}, {"C1", CheckC1, true}, {"C2", CheckC2},   {"C5", CheckC5},
                           {"C8", CheckC8}, {"C10", CheckC10},     {"C11", CheckC11}, {"C14", CheckC14}};

}  // namespace

absl::Span<const Line> ValueLines() { return kLines; }

}  // namespace keval::contract
