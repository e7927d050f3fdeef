#include "core/linear_logp/reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace keval::linear_logp {
namespace {

double Dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void AddScaled(double scale, const double* values, std::int64_t count, double* into) {
  for (std::int64_t i = 0; i < count; ++i) into[i] += scale * values[i];
}

void AddScaledMagnitudes(double scale, const double* values, std::int64_t count, double* into) {
  for (std::int64_t i = 0; i < count; ++i) into[i] += scale * std::abs(values[i]);
}

// Turns logits [V] into softmax in place; returns logsumexp and, through `others`, the probability of every word but
// `target`, summed without ever forming 1 - p.
double Softmax(std::vector<double>* logits, std::int64_t target, double* others) {
  const double largest = *std::max_element(logits->begin(), logits->end());
  double sum = 0;
  double sum_of_others = 0;
  for (std::size_t word = 0; word < logits->size(); ++word) {
    double& value = (*logits)[word];
    value = std::exp(value - largest);  // NaN where every word is masked, as the formula says.
    sum += value;
    if (static_cast<std::int64_t>(word) != target) sum_of_others += value;
  }
  for (double& value : *logits) value /= sum;
  *others = sum_of_others / sum;
  return largest + std::log(sum);
}

}  // namespace

ReferenceResult ComputeReference(const ReferenceInputs& inputs) {
  const std::int64_t width = inputs.hidden_size;
  const std::int64_t words = inputs.vocab_size;
  const auto tokens = static_cast<std::size_t>(inputs.num_tokens);
  ReferenceResult result;
  result.logp.resize(tokens);
  result.target_shortage.resize(tokens);
  result.grad_hidden.resize(inputs.hidden.size());
  result.summed_hidden.resize(inputs.hidden.size());
  result.grad_weight.resize(inputs.weight.size());
  result.summed_weight.resize(inputs.weight.size());
  result.grad_bias.resize(static_cast<std::size_t>(words));
  result.summed_bias.resize(static_cast<std::size_t>(words));

  std::vector<double> row(static_cast<std::size_t>(words));
  for (std::size_t token = 0; token < tokens; ++token) {
    const std::int64_t hidden_offset = static_cast<std::int64_t>(token) * width;
    const double* hidden = inputs.hidden.data() + hidden_offset;
    const std::int64_t target = inputs.targets[token];
    for (std::size_t word = 0; word < row.size(); ++word) {
      row[word] = Dot(hidden, inputs.weight.data() + static_cast<std::int64_t>(word) * width, width);
      if (inputs.bias) row[word] += (*inputs.bias)[word];
      if (std::isfinite(row[word])) result.max_abs_logit = std::max(result.max_abs_logit, std::abs(row[word]));
    }
    const double target_logit = row[static_cast<std::size_t>(target)];
    double others = 0;
    result.logp[token] = target_logit - Softmax(&row, target, &others);
    result.target_shortage[token] = others;

    const double upstream = inputs.grad_logp[token];
    for (std::int64_t word = 0; word < words; ++word) {
      const auto index = static_cast<std::size_t>(word);
      const double dz = upstream * (word == target ? others : -row[index]);
      const double summed = std::abs(upstream) * (word == target ? 1 + row[index] : row[index]);
      const double* weight = inputs.weight.data() + word * width;
      AddScaled(dz, weight, width, result.grad_hidden.data() + hidden_offset);
      AddScaled(dz, hidden, width, result.grad_weight.data() + word * width);
      AddScaledMagnitudes(summed, weight, width, result.summed_hidden.data() + hidden_offset);
      AddScaledMagnitudes(summed, hidden, width, result.summed_weight.data() + word * width);
      result.grad_bias[index] += dz;
      result.summed_bias[index] += summed;
    }
  }
  return result;
}

}  // namespace keval::linear_logp
