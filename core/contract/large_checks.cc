#include "core/contract/large_checks.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/number.h"
#include "core/contract/accuracy.h"

namespace keval::contract {
namespace {

constexpr std::int64_t kSliceElements = std::int64_t{1} << 26;  // Half a GiB of float64.
constexpr std::int64_t kSampledRows = 9;
constexpr std::int64_t kReferenceBytes = std::int64_t{4} << 30;

// N V and V D past 2^31, each by a little, the other product small.
constexpr CaseShape kManyLogits = {.num_tokens = 65600, .hidden_size = 16, .vocab_size = 32771};
constexpr CaseShape kLargeTable = {.num_tokens = 8, .hidden_size = 2064, .vocab_size = 1048583};

// Evenly spread over [0, count), first and last included.
at::Tensor SpreadRows(std::int64_t count, at::Device device) {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < kSampledRows; ++i) {
    const std::int64_t row = (count - 1) * i / (kSampledRows - 1);
    if (rows.empty() || rows.back() != row) rows.push_back(row);
  }
  return at::tensor(rows, at::TensorOptions(at::kLong)).to(device);
}

Case MakeLarge(const CaseMaker& maker, const CaseShape& shape) {
  const at::Device device = TorchDevice(maker.device());
  // The device's own kind of generator: the host's would take minutes for the table.
  at::Generator generator = at::globalContext().defaultGenerator(device).clone();
  generator.set_current_seed(maker.seed());
  const auto normal = [&](at::IntArrayRef sizes, double scale) {
    return at::randn(sizes, generator, at::TensorOptions(at::kBFloat16).device(device)).mul_(scale);
  };
  Case c;
  c.name = absl::StrCat(shape.num_tokens, "x", shape.hidden_size, "x", shape.vocab_size);
  c.inputs.hidden = normal({shape.num_tokens, shape.hidden_size}, 1);
  c.inputs.weight = normal({shape.vocab_size, shape.hidden_size}, 0.05);
  c.inputs.bias = normal({shape.vocab_size}, 0.5);
  c.inputs.targets =
      at::randint(0, shape.vocab_size, {shape.num_tokens}, generator, at::TensorOptions(at::kLong).device(device));
  c.inputs.targets.slice(0, 0, c10::nullopt, 2).fill_(shape.vocab_size - 1);
  c.inputs.grad_logp = at::randn({shape.num_tokens}, generator, at::TensorOptions(at::kFloat).device(device));
  c.problem.dtype = DType::kBFloat16;
  Describe(&c);
  return c;
}

// The right values of every token's logp and of sampled rows, with the magnitudes that C2 measures by; float64.
struct Sampled {
  at::Tensor tokens;
  at::Tensor words;
  at::Tensor logp;
  at::Tensor grad_hidden;    // [tokens, D]
  at::Tensor summed_hidden;  // S of it.
  at::Tensor grad_weight;    // [words, D]
  at::Tensor summed_weight;
  double max_abs_logit = 0;
};

class SlicedReference {
 public:
  explicit SlicedReference(const Case& c) : inputs_(c.inputs), words_(c.Words()), width_(c.Width()) {
    const at::Device device = inputs_.hidden.device();
    const at::TensorOptions options = at::TensorOptions(at::kDouble).device(device);
    result_.tokens = SpreadRows(c.Tokens(), device);
    result_.words = SpreadRows(words_, device);
    result_.logp = at::empty({c.Tokens()}, options);
    result_.grad_weight = at::zeros({result_.words.size(0), width_}, options);
    result_.summed_weight = at::zeros({result_.words.size(0), width_}, options);
    const std::int64_t step = std::max<std::int64_t>(1, kSliceElements / words_);
    for (std::int64_t begin = 0; begin < c.Tokens(); begin += step) {
      AddTokens(at::arange(begin, std::min(begin + step, c.Tokens()), inputs_.targets.options()), begin);
    }
    SampleHidden();
  }

  const Sampled& result() const { return result_; }

 private:
  template <typename Visit>
  void ForEachWordSlice(const Visit& visit) const {
    const std::int64_t step = std::max<std::int64_t>(1, kSliceElements / width_);
    for (std::int64_t begin = 0; begin < words_; begin += step) {
      visit(begin, inputs_.weight.narrow(0, begin, std::min(step, words_ - begin)).to(at::kDouble));
    }
  }

  at::Tensor LogitsOf(const at::Tensor& hidden) const {
    std::vector<at::Tensor> slices;
    ForEachWordSlice([&](std::int64_t, const at::Tensor& weight) { slices.push_back(at::matmul(hidden, weight.t())); });
    return at::cat(slices, 1).add_(inputs_.bias.to(at::kDouble));
  }

  void AddTokens(const at::Tensor& tokens, std::int64_t begin) {
    const at::Tensor hidden = inputs_.hidden.index_select(0, tokens).to(at::kDouble);
    const at::Tensor logits = LogitsOf(hidden);
    result_.max_abs_logit = std::max(result_.max_abs_logit, logits.abs().max().item<double>());
    const at::Tensor lse = at::logsumexp(logits, at::IntArrayRef{1}, /*keepdim=*/true);
    const at::Tensor targets = inputs_.targets.index_select(0, tokens).unsqueeze(1);
    result_.logp.narrow(0, begin, tokens.size(0)).copy_((logits.gather(1, targets) - lse).squeeze(1));
    const at::Tensor p = (logits.index_select(1, result_.words) - lse).exp();
    const at::Tensor hit = targets.eq(result_.words.unsqueeze(0)).to(at::kDouble);
    const at::Tensor upstream = inputs_.grad_logp.index_select(0, tokens).to(at::kDouble).unsqueeze(1);
    result_.grad_weight.add_(at::matmul(((hit - p) * upstream).t(), hidden));
    result_.summed_weight.add_(at::matmul(((hit + p) * upstream.abs()).t(), hidden.abs()));
  }

  void SampleHidden() {
    const at::Tensor logits = LogitsOf(inputs_.hidden.index_select(0, result_.tokens).to(at::kDouble));
    const at::Tensor p = logits.softmax(1);
    const at::Tensor targets = inputs_.targets.index_select(0, result_.tokens).unsqueeze(1);
    const at::Tensor hit = at::zeros(p.sizes(), p.options()).scatter_(1, targets, 1.0);
    const at::Tensor upstream = inputs_.grad_logp.index_select(0, result_.tokens).to(at::kDouble).unsqueeze(1);
    const at::Tensor dz = (hit - p) * upstream;
    const at::Tensor magnitude = (hit + p) * upstream.abs();
    result_.grad_hidden = at::zeros({result_.tokens.size(0), width_}, p.options());
    result_.summed_hidden = at::zeros({result_.tokens.size(0), width_}, p.options());
    ForEachWordSlice([&](std::int64_t begin, const at::Tensor& weight) {
      result_.grad_hidden.add_(at::matmul(dz.narrow(1, begin, weight.size(0)), weight));
      result_.summed_hidden.add_(at::matmul(magnitude.narrow(1, begin, weight.size(0)), weight.abs()));
    });
  }

  const linear_logp::VariantInputs& inputs_;
  std::int64_t words_;
  std::int64_t width_;
  Sampled result_;
};

double Norm(const at::Tensor& tensor) { return tensor.norm().item<double>(); }

// Row by row: the sum over all rows would hide one that is wrong.
void JudgeRowsOf(const std::string& label, const char* name, const at::Tensor& gradient, const at::Tensor& rows,
                 const at::Tensor& want, const at::Tensor& summed, double epsilon, Tally* tally) {
  const at::Tensor got = gradient.index_select(0, rows).to(at::kDouble);
  const double unit = RoundingUnit(gradient.scalar_type());
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    const double limit = epsilon * Norm(summed.select(0, i)) + unit * Norm(want.select(0, i));
    tally->Measure(label, Norm(got.select(0, i) - want.select(0, i)), limit,
                   absl::StrCat(name, " row ", rows.select(0, i).item<std::int64_t>()));
  }
}

std::int64_t NeededBytes(const Arm& arm, const Case& c) {
  const linear_logp::Problem& p = c.problem;
  const std::int64_t operands = (p.num_tokens + p.vocab_size) * p.hidden_size * DTypeSize(p.dtype);
  return arm.ScratchBytes(c) + 2 * operands + kReferenceBytes;
}

void CheckC12(const Evidence& evidence, const Arm& arm, Tally* tally) {
  const linear_logp::Device& device = evidence.maker.device();
  if (!device.cuda) return tally->Note("needs tens of GiB and a GPU; this is a CPU");
  if (evidence.quick) return tally->Note("left out of a quick check");
  for (const CaseShape& shape : {kManyLogits, kLargeTable}) {
    Case sizes;
    sizes.problem = {.num_tokens = shape.num_tokens,
                     .hidden_size = shape.hidden_size,
                     .vocab_size = shape.vocab_size,
                     .dtype = DType::kBFloat16,
                     .has_bias = true,
                     .has_grad_logp = true};
    const std::int64_t needed = NeededBytes(arm, sizes);
    std::int64_t free = 0;
    for (const linear_logp::DeviceDescription& d : linear_logp::ListDevices().devices) {
      if (d.device.Name() == device.Name()) free = d.free_bytes;
    }
    if (needed > free) {
      tally->Note(absl::StrCat("device memory: ", needed, " bytes needed, ", free, " free"));
      continue;
    }
    JudgeLargeShape(evidence, arm, shape, tally);
  }
}

constexpr Line kLines[] = {{"C12", CheckC12}};

}  // namespace

void JudgeLargeShape(const Evidence& evidence, const Arm& arm, const CaseShape& shape, Tally* tally) {
  const Case c = MakeLarge(evidence.maker, shape);
  const Outcome outcome = arm.RunLarge(c);
  if (!Usable(c, outcome, tally)) return;
  const SlicedReference reference(c);
  const Sampled& want = reference.result();
  const std::string label = c.Label();
  linear_logp::ReferenceResult limits;
  limits.max_abs_logit = want.max_abs_logit;
  limits.logp = Values(want.logp);
  tally->Measure(label, (outcome.logp.to(at::kDouble) - want.logp).abs().max().item<double>(),
                 LogpLimit(c, arm.description(), limits), "logp");
  const double epsilon = EpsilonOf(c, arm.description(), want.max_abs_logit);
  JudgeRowsOf(label, "grad_hidden", outcome.gradients.grad_hidden, want.tokens, want.grad_hidden, want.summed_hidden,
              epsilon, tally);
  JudgeRowsOf(label, "grad_weight", outcome.gradients.grad_weight, want.words, want.grad_weight, want.summed_weight,
              epsilon, tally);
}

absl::Span<const Line> LargeLines() { return kLines; }

}  // namespace keval::contract
