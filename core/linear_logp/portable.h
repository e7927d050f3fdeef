// What the variants made of ATen operators share: the formula cut into pieces, and the chunked loops of the two
// portable paths. The same code runs on a CPU and on CUDA.
//
//   logits = hidden . weight^T + bias        logp = log_softmax(logits)[target]
//   dz = grad_logp * (onehot(target) - softmax(logits))
//   grad_hidden = dz . weight                grad_weight = dz^T . hidden          grad_bias = sum of dz over tokens
//
// Precondition of everything here: the caller runs under the autocast state that the call shall have (AutocastScope).
// Additions outside the weight-gradient table are written as aten::add, so that counting aten::add_ counts the table's.
#ifndef KEVAL_CORE_LINEAR_LOGP_PORTABLE_H_
#define KEVAL_CORE_LINEAR_LOGP_PORTABLE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "core/linear_logp/variant.h"

namespace keval::linear_logp {

// float64 for float64 operands, else float32: dtype of logits, dz, the table and logp.
at::ScalarType AccumulationType(const at::Tensor& operand);

// P9: dtype in which gradients are returned.
at::ScalarType GradientType(const at::Tensor& operand, const Options& options);

// P2: bfloat16 and float16 upcast to float32; float32 and float64 as they are, without a copy.
at::Tensor GemmOperand(const at::Tensor& operand);

// [rows, V] in AccumulationType. `hidden` and `weight`: GEMM operands; `bias`: in AccumulationType, or undefined.
at::Tensor Logits(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias);

// logp [rows] of logits [rows, V].
at::Tensor TargetLogp(const at::Tensor& logits, const at::Tensor& targets);

// P3: dz [rows, V] by softmax, negate, add one at the target, scale. `grad_logp` [rows]: any strides.
at::Tensor LogitsGradient(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& grad_logp);

// Throws Stopped when `check` is set and answers with an error.
void ThrowIfStopped(const ContinueCheck& check);

// Adds left [V, rows] . right [rows, D] into the table [V, D].
using UpdateTable = std::function<void(at::Tensor& table, const at::Tensor& left, const at::Tensor& right)>;

// P5's update: a product of its own, then an addition.
void MatmulThenAdd(at::Tensor& table, const at::Tensor& left, const at::Tensor& right);

// P6: why the product of these operands can't be accumulated in place; nullptr where it can. addmm_ isn't an autocast
// operator: under autocast it would multiply in float32 what base multiplies in 16 bits.
const char* WhyNotInPlace(const at::Tensor& left, const at::Tensor& right);

// The chunked forward, P1; `dispatch` (may be null) gets the chunking.
at::Tensor PortableForward(const VariantInputs& inputs, const Options& options, const ContinueCheck& check,
                           Dispatch* dispatch);

// The chunked backward, P1 to P4, P8, P9; `update_table` is what the two paths differ in. Nothing of [V, D] beyond P2's
// upcast of weight exists unless the weight gradient is wanted.
Gradients PortableBackward(const VariantInputs& inputs, const Options& options, Want want, const ContinueCheck& check,
                           const UpdateTable& update_table, Dispatch* dispatch);

// Zeroed tables of what is wanted, P4; `weight` and `bias` (may be undefined) as in VariantInputs.
GradientTables ZeroTables(const VariantInputs& inputs, Want want);

// Variant::Chunk of the two paths: the same operations on the same chunk as the two loops above, the logits computed
// once.
ChunkResult PortableChunk(const VariantInputs& chunk, const Options& options, Want want,
                          const UpdateTable& update_table, GradientTables* tables);

// Supported everywhere but for float64 on CUDA; `fallback` stays false.
Support SupportsAtenVariant(const Problem& problem, const Device& device);

// Scratch of the loops above with chunks of `chunk_tokens`; an upper estimate.
std::int64_t AtenScratchBytes(const Problem& problem, const Options& options, Want want, std::int64_t chunk_tokens);

// PortableForward's and PortableBackward's, with P1's chunks.
std::int64_t PortableScratchBytes(const Problem& problem, const Options& options, Want want);

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_PORTABLE_H_
