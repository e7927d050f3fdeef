#include "core/contract/accuracy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/number.h"

namespace keval::contract {
namespace {

using linear_logp::Autocast;
using linear_logp::ReferenceResult;
using linear_logp::VariantDescription;

constexpr double kTargetShortageOfNonZeroRows = 1e-6;
constexpr double kTargetShortageOfExactRows = 1e-5;

using Span = absl::Span<const double>;

// Contract limits are in units of float32; the same argument with float64's unit gives 2^-29 of them.
double Scale(const Case& test_case) { return test_case.problem.dtype == DType::kFloat64 ? std::ldexp(1.0, -29) : 1.0; }

double Norm(Span values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

// NaN or infinite where `got` is and `want` isn't, so that it exceeds every limit.
double ErrorNorm(Span got, Span want) {
  double squares = 0;
  for (std::size_t i = 0; i < want.size(); ++i) squares += (got[i] - want[i]) * (got[i] - want[i]);
  return std::sqrt(squares);
}

bool SameNonFinite(double got, double want) { return std::isnan(want) ? std::isnan(got) : got == want; }

void JudgeLogp(const Case& test_case, const Outcome& outcome, const ReferenceResult& truth,
               const VariantDescription& description, Tally* tally) {
  const std::string label = test_case.Label();
  const std::vector<double> got = Values(outcome.logp);
  if (got.size() != truth.logp.size()) return tally->Fail(label, "logp has the wrong size");
  double worst = 0;
  for (std::size_t token = 0; token < got.size(); ++token) {
    if (!std::isfinite(truth.logp[token])) {
      tally->Expect(
          label, SameNonFinite(got[token], truth.logp[token]),
          absl::StrCat("logp[", token, "] is ", DoubleText(got[token]), ", not ", DoubleText(truth.logp[token])));
      continue;
    }
    const double error = std::abs(got[token] - truth.logp[token]);
    worst = error <= worst ? worst : error;  // Takes a NaN, and keeps it.
    if (std::isnan(worst)) break;
  }
  tally->Measure(label, worst, LogpLimit(test_case, description, truth), "logp");
}

void JudgeGradient(const Case& test_case, absl::string_view name, const at::Tensor& gradient, Span want, Span summed,
                   double epsilon, Tally* tally) {
  if (!gradient.defined()) return;
  const std::string label = test_case.Label();
  const std::vector<double> got = Values(gradient);
  if (got.size() != want.size()) return tally->Fail(label, absl::StrCat(name, " has the wrong size"));
  const double error = ErrorNorm(got, want);
  const double want_norm = Norm(want);
  const double limit = epsilon * Norm(summed) + RoundingUnit(gradient.scalar_type()) * want_norm;
  const double relative = want_norm > 0 ? error / want_norm : error;
  tally->Measure(label, error, limit, absl::StrCat(name, ", relative Frobenius error ", DoubleText(relative)));
}

}  // namespace

std::vector<double> Values(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  const auto* data = host.const_data_ptr<double>();
  return {data, data + host.numel()};
}

ReferenceResult TruthOf(const Case& test_case) {
  linear_logp::ReferenceInputs inputs;
  inputs.num_tokens = test_case.Tokens();
  inputs.hidden_size = test_case.Width();
  inputs.vocab_size = test_case.Words();
  inputs.hidden = Values(test_case.inputs.hidden);
  inputs.weight = Values(test_case.inputs.weight);
  if (test_case.inputs.bias.defined()) inputs.bias = Values(test_case.inputs.bias);
  for (const double target : Values(test_case.inputs.targets)) {
    inputs.targets.push_back(static_cast<std::int64_t>(target));
  }
  inputs.grad_logp = Values(test_case.inputs.grad_logp);
  return linear_logp::ComputeReference(inputs);
}

double EpsilonOf(const Case& test_case, const VariantDescription& description, double max_abs_logit) {
  switch (test_case.options.autocast) {
    case Autocast::kBFloat16:
      return std::ldexp(1.0, -7) * std::max(1.0, max_abs_logit);
    case Autocast::kFloat16:
      return std::ldexp(1.0, -10) * std::max(1.0, max_abs_logit);
    case Autocast::kNone:
      break;
  }
  if (description.epsilon > 0) return description.epsilon;
  return Scale(test_case) * (5e-6 + 8 * std::ldexp(1.0, -24) * max_abs_logit);
}

double RoundingUnit(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBFloat16:
      return std::ldexp(1.0, -8);
    case at::kHalf:
      return std::ldexp(1.0, -11);
    case at::kDouble:
      return std::ldexp(1.0, -53);
    default:
      return std::ldexp(1.0, -24);
  }
}

double LogitUlp(const Case& test_case, double magnitude) {
  return std::ldexp(1.0, magnitude > 0 ? std::ilogb(magnitude) - 23 : -149) * Scale(test_case);
}

double LogpLimit(const Case& test_case, const VariantDescription& description, const ReferenceResult& truth) {
  double largest = std::max(1.0, truth.max_abs_logit);
  if (test_case.options.autocast != Autocast::kNone) {
    return EpsilonOf(test_case, description, largest);  // Logits are 16-bit there.
  }
  for (const double logp : truth.logp) {
    if (std::isfinite(logp)) largest = std::max(largest, std::abs(logp));
  }
  return 8 * std::ldexp(1.0, -24) * largest * Scale(test_case);
}

void JudgeAccuracy(const Case& test_case, const Outcome& outcome, const ReferenceResult& truth,
                   const VariantDescription& description, Tally* tally) {
  JudgeLogp(test_case, outcome, truth, description, tally);
  const double epsilon = EpsilonOf(test_case, description, truth.max_abs_logit);
  const linear_logp::Gradients& gradients = outcome.gradients;
  JudgeGradient(test_case, "grad_hidden", gradients.grad_hidden, truth.grad_hidden, truth.summed_hidden, epsilon,
                tally);
  JudgeGradient(test_case, "grad_weight", gradients.grad_weight, truth.grad_weight, truth.summed_weight, epsilon,
                tally);
  JudgeGradient(test_case, "grad_bias", gradients.grad_bias, truth.grad_bias, truth.summed_bias, epsilon, tally);
}

void JudgeRows(const Case& test_case, const Outcome& outcome, const ReferenceResult& truth,
               const VariantDescription& description, Tally* tally) {
  const std::string label = test_case.Label();
  const at::Tensor& gradient = outcome.gradients.grad_hidden;
  const auto width = static_cast<std::size_t>(test_case.Width());
  const std::vector<double> got = Values(gradient);
  if (got.size() != truth.grad_hidden.size()) return tally->Fail(label, "grad_hidden has the wrong size");
  const double epsilon = EpsilonOf(test_case, description, truth.max_abs_logit);
  const double unit = RoundingUnit(gradient.scalar_type());
  const double exact_limit = unit > std::ldexp(1.0, -24) ? 1e-2 : 1e-3;
  for (std::size_t token = 0; token < truth.logp.size(); ++token) {
    const auto row = [&](Span values) { return values.subspan(token * width, width); };
    const double want = Norm(row(truth.grad_hidden));
    const double error = ErrorNorm(row(got), row(truth.grad_hidden));
    const std::string detail = absl::StrCat("row ", token, ", 1 - p ", DoubleText(truth.target_shortage[token]));
    tally->Measure(label, error, epsilon * Norm(row(truth.summed_hidden)) + unit * want, detail);
    if (want > 0 && truth.target_shortage[token] >= kTargetShortageOfNonZeroRows) {
      tally->Expect(label, Norm(row(got)) != 0, absl::StrCat(detail, ": a zero row"));
    }
    if (description.exact_target && want > 0 && truth.target_shortage[token] >= kTargetShortageOfExactRows) {
      tally->Measure(label, error, exact_limit * want, absl::StrCat(detail, ", as exact_target"));
    }
  }
}

}  // namespace keval::contract
