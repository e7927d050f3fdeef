// The interface that every implementation of linear_logp has, over torch tensors. Only core/ and its tests include
// this.
#ifndef KEVAL_CORE_LINEAR_LOGP_VARIANT_H_
#define KEVAL_CORE_LINEAR_LOGP_VARIANT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/linear_logp/engine.h"
#include "core/linear_logp/problem.h"

namespace keval::linear_logp {

// Tensors on one device. hidden [N, D], weight [V, D], bias [V] or undefined: one floating dtype, contiguous.
// targets [N] int64. grad_logp [N] float32 (float64 with float64), any strides; undefined in Forward.
struct VariantInputs {
  at::Tensor hidden;
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor targets;
  at::Tensor grad_logp;
};

// Undefined where not wanted. Dtypes: the input's, or float32 by Options::grad_dtype (float64 stays float64).
struct Gradients {
  at::Tensor grad_hidden;  // [N, D]
  at::Tensor grad_weight;  // [V, D]
  at::Tensor grad_bias;    // [V]
};

// What a backward adds up over the tokens, [V, D] and [V] in the accumulation type; undefined where not wanted.
struct GradientTables {
  at::Tensor weight;
  at::Tensor bias;
};

// Of the tokens of one chunk.
struct ChunkResult {
  at::Tensor logp;         // [tokens]
  at::Tensor grad_hidden;  // [tokens, D]; undefined where not wanted.
};

// What stopped a call between chunks; thrown through torch code by variants and caught by Engine. A std::exception, so
// that autograd's threads carry it to the thread that called backward.
struct Stopped : std::exception {
  explicit Stopped(absl::Status status_in) : status(std::move(status_in)) {}
  const char* what() const noexcept override { return "stopped between chunks"; }

  absl::Status status;
};

// Stateless and thread-safe: one object for each name lives in the registry for the whole process. Calls run on the
// calling thread and current stream, under the caller's autocast state (AutocastScope), and throw c10::Error like any
// torch code.
class Variant {
 public:
  virtual ~Variant() = default;
  virtual VariantDescription Describe() const = 0;
  // Shape, dtype, device, bias, autocast.
  virtual Support Supports(const Problem& problem, const Options& options, const Device& device) const = 0;
  // Scratch bytes on the device beyond inputs and outputs; an upper estimate.
  virtual std::int64_t ScratchBytes(const Problem& problem, const Options& options, Want want) const = 0;
  // logp [N].
  virtual at::Tensor Forward(const VariantInputs& inputs, const Options& options, const ContinueCheck& check,
                             Dispatch* dispatch) const = 0;
  virtual Gradients Backward(const VariantInputs& inputs, const Options& options, Want want, const ContinueCheck& check,
                             Dispatch* dispatch) const = 0;

  // Where Describe says takes_chunks: one chunk of Forward and, where `chunk.grad_logp` is defined, of Backward, whose
  // sums go into `tables`. `chunk` has the chunk's tokens; its weight and bias are in the accumulation type already
  // (float64 or float32).
  virtual ChunkResult Chunk(const VariantInputs& chunk, const Options& options, Want want, GradientTables* tables,
                            Dispatch* dispatch) const;
};

// The variant of that name; INVALID_ARGUMENT (field "variant") naming the known ones.
absl::StatusOr<const Variant*> FindVariant(absl::string_view name);
std::vector<const Variant*> AllVariants();

// For tests: adds `variant` under its name for as long as the returned object lives.
class ScopedVariantForTest {
 public:
  explicit ScopedVariantForTest(std::unique_ptr<Variant> variant);
  ~ScopedVariantForTest();
  ScopedVariantForTest(const ScopedVariantForTest&) = delete;
  ScopedVariantForTest& operator=(const ScopedVariantForTest&) = delete;

 private:
  std::string name_;
};

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_VARIANT_H_
