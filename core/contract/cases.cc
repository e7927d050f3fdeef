#include "core/contract/cases.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorIndexing.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "core/linear_logp/host_tensor.h"

namespace keval::contract {
namespace {

using linear_logp::Autocast;
using linear_logp::GradDtype;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Values on the host, float64 and int64, before they take the case's dtype.
struct HostValues {
  at::Tensor hidden;
  at::Tensor weight;
  at::Tensor bias;  // Undefined without one.
  at::Tensor targets;
  at::Tensor grad_logp;
};

enum class Upstream : std::uint8_t { kContiguous, kStrided, kExpanded };

struct Kind {
  const char* name;
  CaseShape shape;
  void (*adjust)(HostValues*);
  Upstream upstream = Upstream::kContiguous;
};

void Nothing(HostValues* /*values*/) {}

// 1000 is exact in every dtype; the logits' differences are as in the plain case.
void CommonOffset(HostValues* values) { values->bias.fill_(1000); }

void EdgeTargets(HostValues* values) {
  values->targets.fill_(values->weight.size(0) - 1);
  values->targets.slice(0, 0, c10::nullopt, 2).fill_(0);
}

void SameTarget(HostValues* values) { values->targets.fill_(3); }

void PartlyMaskedUpstream(HostValues* values) { values->grad_logp.slice(0, 0, c10::nullopt, 3).fill_(0); }

void ZeroUpstream(HostValues* values) { values->grad_logp.fill_(0); }

// All logits far below zero: a padded word counted with logit 0 would outweigh them.
void AllLogitsNegative(HostValues* values) { values->bias.fill_(-40); }

// Word 3 is every token's target, by a margin of `margins` in turn: the rest of the words share 1 - p.
void Certain(HostValues* values, std::initializer_list<double> margins) {
  values->hidden.mul_(0.5);
  values->weight.mul_(0.5);
  values->weight.select(1, 0).fill_(0);
  values->weight.select(0, 3).fill_(0.125);
  values->weight.select(0, 3).select(0, 0).fill_(1);
  values->targets.fill_(3);
  for (std::int64_t token = 0; token < values->hidden.size(0); ++token) {
    values->hidden.select(0, token).select(0, 0).fill_(
        *(margins.begin() + token % static_cast<std::int64_t>(margins.size())));
  }
}

// 1 - p from a few per cent down to a few millionths.
void NearlyCertain(HostValues* values) { Certain(values, {6, 8, 10, 12, 14, 16.5}); }

// 1 - p below float32's resolution.
void Saturated(HostValues* values) { Certain(values, {40, 60}); }

void MaskedWords(HostValues* values) {
  values->bias.slice(0, 1, c10::nullopt, 4).fill_(-kInfinity);
  values->targets.fill_(4);
}

// As above, but token 1's own target is masked.
void MaskedTarget(HostValues* values) {
  MaskedWords(values);
  values->targets.select(0, 1).fill_(5);
}

constexpr CaseShape kNoBias = {.bias = false};

const std::array<Kind, 21> kKinds = {{
    {"plain_bias", {}, Nothing},
    {"plain_no_bias", kNoBias, Nothing},
    {"one_chunk", {.chunk_tokens = 23}, Nothing},
    {"one_token_chunks", {.chunk_tokens = 1}, Nothing},
    {"chunk_below_vocabulary", {.chunk_tokens = 0}, Nothing},
    {"one_token", {.num_tokens = 1}, Nothing},
    {"larger", {.num_tokens = 64, .hidden_size = 48, .vocab_size = 1021, .chunk_tokens = 24}, Nothing},
    {"common_offset", {}, CommonOffset},
    {"edge_targets", {}, EdgeTargets},
    {"same_target", {}, SameTarget},
    {"partly_masked_upstream", {}, PartlyMaskedUpstream},
    {"zero_upstream", {}, ZeroUpstream},
    {"strided_upstream", {}, Nothing, Upstream::kStrided},
    {"expanded_upstream", {}, Nothing, Upstream::kExpanded},
    {"all_logits_negative", {.vocab_size = 65}, AllLogitsNegative},
    {"nearly_certain_target", {}, NearlyCertain},
    {"saturated_target", {}, Saturated},
    {"masked_words", {}, MaskedWords},
    {"masked_target", {}, MaskedTarget},
    {"one_word_vocabulary", {.vocab_size = 1}, Nothing},
    {"no_tokens", {.num_tokens = 0}, Nothing},
}};

HostValues RandomValues(std::uint64_t seed, const CaseShape& shape) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto normal = [&](at::IntArrayRef sizes, double scale) {
    return at::randn(sizes, generator, at::TensorOptions(at::kDouble)).mul_(scale);
  };
  HostValues values;
  values.hidden = normal({shape.num_tokens, shape.hidden_size}, 1);
  values.weight = normal({shape.vocab_size, shape.hidden_size}, 0.5);
  const at::Tensor bias = normal({shape.vocab_size}, 0.5);  // Drawn either way: the rest is the same without it.
  if (shape.bias) values.bias = bias;
  values.targets = at::randint(0, shape.vocab_size, {shape.num_tokens}, generator, at::TensorOptions(at::kLong));
  // Not near zero: a gradient among float16's subnormals has an absolute error that no relative bound allows for.
  const at::Tensor upstream = normal({shape.num_tokens}, 1);
  values.grad_logp = upstream.sign().mul_(0.25).add_(upstream);
  return values;
}

at::Tensor Lay(const at::Tensor& upstream, Upstream layout) {
  if (layout == Upstream::kContiguous || upstream.numel() == 0) return upstream;
  if (layout == Upstream::kExpanded) return upstream.slice(0, 0, 1).clone().expand({upstream.numel()});
  at::Tensor wide = at::zeros({upstream.numel(), 3}, upstream.options());
  wide.fill_(77);  // What a read without strides would see.
  wide.select(1, 1).copy_(upstream);
  return wide.select(1, 1);
}

Case Finish(const Kind& kind, const HostValues& values, DType dtype, const linear_logp::Device& device) {
  const at::Device torch_device = TorchDevice(device);
  const at::ScalarType type = linear_logp::TorchType(dtype);
  Case result;
  result.name = kind.name;
  result.inputs.hidden = values.hidden.to(type).to(torch_device);
  result.inputs.weight = values.weight.to(type).to(torch_device);
  if (values.bias.defined()) result.inputs.bias = values.bias.to(type).to(torch_device);
  result.inputs.targets = values.targets.to(torch_device);
  const at::ScalarType upstream_type = type == at::kDouble ? at::kDouble : at::kFloat;
  result.inputs.grad_logp = Lay(values.grad_logp.to(upstream_type).to(torch_device), kind.upstream);
  const std::int64_t words = kind.shape.vocab_size;
  result.options.chunk_elems = std::max<std::int64_t>(1, kind.shape.chunk_tokens * words + words / 2);
  result.problem.dtype = dtype;
  Describe(&result);
  return result;
}

Case MakeKind(const Kind& kind, std::uint64_t seed, DType dtype, const linear_logp::Device& device) {
  HostValues values = RandomValues(seed, kind.shape);
  kind.adjust(&values);
  return Finish(kind, values, dtype, device);
}

}  // namespace

std::string Case::Label() const {
  std::string label(DTypeName(problem.dtype));
  if (options.autocast != Autocast::kNone) {
    absl::StrAppend(&label, "+autocast(", options.autocast == Autocast::kBFloat16 ? "bfloat16" : "float16", ")");
  }
  if (options.grad_dtype == GradDtype::kFloat32) absl::StrAppend(&label, "->float32");
  return absl::StrCat(label, "/", name);
}

c10::DeviceType TorchDeviceType(const linear_logp::Device& device) { return device.cuda ? at::kCUDA : at::kCPU; }

at::Device TorchDevice(const linear_logp::Device& device) {
  return device.cuda ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device.index)) : at::Device(at::kCPU);
}

void Describe(Case* test_case) {
  linear_logp::Problem& problem = test_case->problem;
  const linear_logp::VariantInputs& inputs = test_case->inputs;
  problem.num_tokens = inputs.hidden.size(0);
  problem.leading_shape = {problem.num_tokens};
  problem.hidden_size = inputs.hidden.size(1);
  problem.vocab_size = inputs.weight.size(0);
  problem.has_bias = inputs.bias.defined();
  problem.has_grad_logp = true;
}

std::vector<DType> CaseMaker::DTypes() const {
  std::vector<DType> dtypes = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
  if (!device_.cuda) dtypes.push_back(DType::kFloat64);
  return dtypes;
}

Case CaseMaker::Plain(DType dtype, const CaseShape& shape, const std::string& name) const {
  Case result = MakeKind({"", shape, Nothing}, seed_, dtype, device_);
  result.name = name;
  return result;
}

std::vector<Case> CaseMaker::Standard(DType dtype) const {
  std::vector<Case> cases;
  cases.reserve(kKinds.size());
  for (const Kind& kind : kKinds) cases.push_back(MakeKind(kind, seed_, dtype, device_));
  return cases;
}

Case CaseMaker::Standard(DType dtype, const std::string& name) const {
  const auto* kind = std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& k) { return name == k.name; });
  TORCH_CHECK(kind != kKinds.end(), "no case ", name);
  return MakeKind(*kind, seed_, dtype, device_);
}

}  // namespace keval::contract
