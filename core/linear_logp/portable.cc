#include "core/linear_logp/portable.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <string>

#include "core/linear_logp/autocast.h"
#include "core/linear_logp/byte_count.h"
#include "core/linear_logp/chunk_plan.h"

namespace keval::linear_logp {
namespace {

// Tokens [begin, begin + count) of one chunk, by the names of VariantInputs.
struct Chunk {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  at::Tensor Of(const at::Tensor& tensor) const { return tensor.narrow(0, begin, count); }
};

// Calls `body` for each chunk of P1 and asks `check` before each.
template <typename Body>
void ForEachChunk(const VariantInputs& inputs, const Options& options, const ContinueCheck& check, Dispatch* dispatch,
                  const Body& body) {
  const std::int64_t tokens = inputs.hidden.size(0);
  const auto plan = MakeChunkPlan(tokens, inputs.hidden.size(1), inputs.weight.size(0), options.chunk_elems);
  TORCH_CHECK(plan.ok(), std::string(plan.status().message()));
  if (dispatch != nullptr) {
    dispatch->chunk_tokens = plan->chunk_tokens;
    dispatch->chunks = plan->chunks;
  }
  for (std::int64_t begin = 0; begin < tokens; begin += plan->chunk_tokens) {
    ThrowIfStopped(check);
    body(Chunk{begin, std::min(plan->chunk_tokens, tokens - begin)});
  }
}

at::Tensor Upcast(const at::Tensor& bias, at::ScalarType type) { return bias.defined() ? bias.to(type) : bias; }

// What a chunk's dz gives: grad_hidden into `grad_hidden`, the rest into `tables`, each where it is defined. `hidden`
// and `weight`: GEMM operands.
void TakeGradients(const at::Tensor& dz, const at::Tensor& hidden, const at::Tensor& weight,
                   const UpdateTable& update_table, const at::Tensor& grad_hidden, GradientTables* tables) {
  if (grad_hidden.defined()) grad_hidden.copy_(at::matmul(dz, weight));
  if (tables->weight.defined()) update_table(tables->weight, dz.t(), hidden);
  if (tables->bias.defined()) at::add_out(tables->bias, tables->bias, dz.sum(0));
}

}  // namespace

at::ScalarType AccumulationType(const at::Tensor& operand) {
  return operand.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::ScalarType GradientType(const at::Tensor& operand, const Options& options) {
  return options.grad_dtype == GradDtype::kFloat32 ? AccumulationType(operand) : operand.scalar_type();
}

at::Tensor GemmOperand(const at::Tensor& operand) { return operand.to(AccumulationType(operand)); }

at::Tensor Logits(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias) {
  // Under autocast the product is bfloat16 or float16.
  at::Tensor logits = at::matmul(hidden, weight.t()).to(AccumulationType(hidden));
  if (bias.defined()) at::add_out(logits, logits, bias);
  return logits;
}

at::Tensor TargetLogp(const at::Tensor& logits, const at::Tensor& targets) {
  return at::log_softmax(logits, 1).gather(1, targets.unsqueeze(1)).squeeze(1);
}

at::Tensor LogitsGradient(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& grad_logp) {
  at::Tensor dz = at::softmax(logits, 1).neg_();
  const at::Tensor column = targets.unsqueeze(1);
  // One target a row, so no element is written twice: the same bits on every run without LibTorch's deterministic mode
  // (numerics.h), where scatter_add_ would be an atomic addition on CUDA.
  dz.scatter_(1, column, at::add(dz.gather(1, column), 1));
  return dz.mul_(grad_logp.unsqueeze(1));
}

void ThrowIfStopped(const ContinueCheck& check) {
  if (!check) return;
  const absl::Status status = check();
  if (!status.ok()) throw Stopped{status};
}

void MatmulThenAdd(at::Tensor& table, const at::Tensor& left, const at::Tensor& right) {
  table.add_(at::matmul(left, right).to(table.scalar_type()));
}

const char* WhyNotInPlace(const at::Tensor& left, const at::Tensor& right) {
  if (left.scalar_type() != at::kFloat || right.scalar_type() != at::kFloat) return "an operand isn't float32";
  if (AutocastEnabled(left.device().type())) return "autocast is on";
  return nullptr;
}

at::Tensor PortableForward(const VariantInputs& inputs, const Options& options, const ContinueCheck& check,
                           Dispatch* dispatch) {
  const at::NoGradGuard no_grad;
  const at::ScalarType type = AccumulationType(inputs.hidden);
  at::Tensor logp = at::empty({inputs.hidden.size(0)}, inputs.hidden.options().dtype(type));
  const at::Tensor weight = GemmOperand(inputs.weight);
  const at::Tensor bias = Upcast(inputs.bias, type);
  ForEachChunk(inputs, options, check, dispatch, [&](const Chunk& chunk) {
    const at::Tensor logits = Logits(GemmOperand(chunk.Of(inputs.hidden)), weight, bias);
    chunk.Of(logp).copy_(TargetLogp(logits, chunk.Of(inputs.targets)));
  });
  return logp;
}

GradientTables ZeroTables(const VariantInputs& inputs, Want want) {
  const at::ScalarType type = AccumulationType(inputs.weight);
  GradientTables tables;
  if (want.weight) tables.weight = at::zeros(inputs.weight.sizes(), inputs.weight.options().dtype(type));
  if (want.bias && inputs.bias.defined()) {
    tables.bias = at::zeros(inputs.bias.sizes(), inputs.bias.options().dtype(type));
  }
  return tables;
}

Gradients PortableBackward(const VariantInputs& inputs, const Options& options, Want want, const ContinueCheck& check,
                           const UpdateTable& update_table, Dispatch* dispatch) {
  const at::NoGradGuard no_grad;
  const at::ScalarType gradient_type = GradientType(inputs.hidden, options);
  Gradients gradients;
  if (want.hidden) {
    gradients.grad_hidden = at::empty(inputs.hidden.sizes(), inputs.hidden.options().dtype(gradient_type));
  }
  GradientTables tables = ZeroTables(inputs, want);
  if (!want.hidden && !tables.weight.defined() && !tables.bias.defined()) return gradients;

  {
    const at::Tensor weight = GemmOperand(inputs.weight);
    const at::Tensor bias = Upcast(inputs.bias, AccumulationType(inputs.hidden));
    ForEachChunk(inputs, options, check, dispatch, [&](const Chunk& chunk) {
      // The logits' GEMM needs this operand whatever is wanted; the weight gradient's right side is the same tensor.
      const at::Tensor hidden = GemmOperand(chunk.Of(inputs.hidden));
      const at::Tensor dz =
          LogitsGradient(Logits(hidden, weight, bias), chunk.Of(inputs.targets), chunk.Of(inputs.grad_logp));
      TakeGradients(dz, hidden, weight, update_table, want.hidden ? chunk.Of(gradients.grad_hidden) : at::Tensor(),
                    &tables);
    });
  }
  if (tables.weight.defined()) gradients.grad_weight = tables.weight.to(gradient_type);
  if (tables.bias.defined()) gradients.grad_bias = tables.bias.to(gradient_type);
  return gradients;
}

ChunkResult PortableChunk(const VariantInputs& chunk, const Options& options, Want want,
                          const UpdateTable& update_table, GradientTables* tables) {
  const at::NoGradGuard no_grad;
  const at::Tensor hidden = GemmOperand(chunk.hidden);
  const at::Tensor logits = Logits(hidden, chunk.weight, chunk.bias);
  ChunkResult result;
  result.logp = TargetLogp(logits, chunk.targets);
  if (!chunk.grad_logp.defined()) return result;
  if (want.hidden) {
    result.grad_hidden =
        at::empty(chunk.hidden.sizes(), chunk.hidden.options().dtype(GradientType(chunk.hidden, options)));
  }
  if (!want.hidden && !tables->weight.defined() && !tables->bias.defined()) return result;
  const at::Tensor dz = LogitsGradient(logits, chunk.targets, chunk.grad_logp);
  TakeGradients(dz, hidden, chunk.weight, update_table, result.grad_hidden, tables);
  return result;
}

Support SupportsAtenVariant(const Problem& problem, const Device& device) {
  if (device.cuda && problem.dtype == DType::kFloat64) return {false, "float64 is computed on a CPU only"};
  return {true, ""};
}

std::int64_t AtenScratchBytes(const Problem& problem, const Options& options, Want want, std::int64_t chunk_tokens) {
  const std::int64_t element = DTypeSize(problem.LogpDtype());
  const std::int64_t table = SaturatingProduct({problem.vocab_size, problem.hidden_size, element});
  const std::int64_t chunk_logits = SaturatingProduct({chunk_tokens, problem.vocab_size, element});
  const std::int64_t chunk_hidden = SaturatingProduct({chunk_tokens, problem.hidden_size, element});
  const bool autocast = options.autocast != Autocast::kNone;
  const bool upcast = DTypeSize(problem.dtype) < element;
  // Logits and their softmax, and a third for autocast's copies of either.
  const std::int64_t logits_bytes = SaturatingProduct({chunk_logits, autocast ? 3 : 2});
  // The chunk's hidden upcast, and its gradient before the last cast.
  const std::int64_t hidden_bytes = SaturatingProduct({chunk_hidden, autocast ? 3 : 2});
  std::int64_t tables = (upcast ? 1 : 0) + (autocast ? 1 : 0);  // The weight upcast; autocast's copy of it.
  if (problem.has_grad_logp && want.weight) {
    tables += 2 + (autocast ? 1 : 0);  // The table and a chunk's product, which autocast makes first in 16 bits.
  }
  const std::int64_t small = SaturatingSum(
      {SaturatingProduct({problem.vocab_size, 4, element}), SaturatingProduct({problem.num_tokens, 4, element})});
  return SaturatingSum({logits_bytes, hidden_bytes, SaturatingProduct({table, tables}), small});
}

std::int64_t PortableScratchBytes(const Problem& problem, const Options& options, Want want) {
  const std::int64_t chunk_tokens = std::max<std::int64_t>(
      1, std::min(problem.num_tokens, options.chunk_elems / std::max<std::int64_t>(1, problem.vocab_size)));
  return AtenScratchBytes(problem, options, want, chunk_tokens);
}

}  // namespace keval::linear_logp
