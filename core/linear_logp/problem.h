// A linear_logp problem, validated once: everything behind this header may rely on what is said here.
#ifndef KEVAL_CORE_LINEAR_LOGP_PROBLEM_H_
#define KEVAL_CORE_LINEAR_LOGP_PROBLEM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "base/shape.h"

namespace keval::linear_logp {

enum class Autocast : std::uint8_t { kNone, kBFloat16, kFloat16 };
enum class GradDtype : std::uint8_t { kInput, kFloat32 };

// Gradients asked for.
struct Want {
  bool hidden = true;
  bool weight = true;
  bool bias = true;  // Ignored without a bias.
};

struct Options {
  std::string variant = "portable_addmm";
  Autocast autocast = Autocast::kNone;
  GradDtype grad_dtype = GradDtype::kInput;
  std::int64_t chunk_elems = std::int64_t{1} << 24;  // At least 1.
  bool force_variant = false;
};

// Specs of a request's tensors, as declared; nothing is allocated yet.
struct TensorSpecs {
  TensorSpec hidden;                    // [..., D]
  TensorSpec weight;                    // [V, D]
  std::optional<TensorSpec> bias;       // [V]
  TensorSpec targets;                   // [...]
  std::optional<TensorSpec> grad_logp;  // [...]; absent: forward only.
};

// Invariants: hidden_size >= 1, vocab_size >= 1, num_tokens >= 0; num_tokens x hidden_size, vocab_size x hidden_size
// and num_tokens x vocab_size, in bytes, fit int64; hidden, weight and bias have `dtype`.
struct Problem {
  std::vector<std::int64_t> leading_shape;  // Of hidden without its last dimension; the shape of logp.
  std::int64_t num_tokens = 0;
  std::int64_t hidden_size = 0;
  std::int64_t vocab_size = 0;
  DType dtype = DType::kFloat32;
  DType targets_dtype = DType::kInt64;
  bool has_bias = false;
  bool has_grad_logp = false;

  // float64 for float64 operands, else float32: dtype of logp and grad_logp.
  DType LogpDtype() const { return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }
};

// The contract's refusals that shapes and dtypes show: INVALID_ARGUMENT naming field ("hidden", "weight", "bias",
// "targets", "grad_logp"), value and limit. FAILED_PRECONDITION (field "hidden") for float64 unless `on_cpu`.
absl::StatusOr<Problem> ValidateProblem(const TensorSpecs& specs, bool on_cpu);

// `bytes` is what arrived for a tensor declared as `spec`: INVALID_ARGUMENT naming `field` unless shape x dtype gives
// it.
absl::Status ValidateByteCount(absl::string_view field, const TensorSpec& spec, std::int64_t bytes);

// Every target in [0, vocab_size); else INVALID_ARGUMENT (field "targets") naming the first offending value and its
// index in the flattened tensor. `targets`: contiguous host memory of num_tokens values of `targets_dtype`, not
// necessarily aligned.
absl::Status ValidateTargets(const Problem& problem, const void* targets);

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_PROBLEM_H_
