#include "core/linear_logp/problem.h"

#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/field_error.h"

namespace keval::linear_logp {
namespace {

// Every product is checked for the widest element, so that no later byte count (a float64 copy, a float32 table of a
// bfloat16 weight) can overflow.
constexpr std::int64_t kWidestElementBytes = 8;

bool IsOperandDType(DType dtype) { return IsFloating(dtype); }

absl::Status RefuseDType(absl::string_view field, DType dtype, absl::string_view limit) {
  return InvalidField(field, DTypeName(dtype), limit);
}

absl::Status CheckElements(absl::string_view field, absl::Span<const std::int64_t> shape) {
  const absl::StatusOr<std::int64_t> elements = NumElements(field, shape);
  if (!elements.ok()) return elements.status();
  if (!CheckedMultiply(*elements, kWidestElementBytes)) {
    return InvalidField(field, ShapeText(shape), "a shape of fewer than 2^60 elements");
  }
  return absl::OkStatus();
}

absl::Status CheckHidden(const TensorSpec& hidden, bool on_cpu) {
  absl::Status status = CheckElements("hidden", hidden.shape);
  if (!status.ok()) return status;
  if (!IsOperandDType(hidden.dtype)) {
    return RefuseDType("hidden", hidden.dtype, "float32, bfloat16, float16 or, on a CPU, float64");
  }
  if (hidden.dtype == DType::kFloat64 && !on_cpu) {
    return WithField(absl::FailedPreconditionError("hidden: float64 is computed on a CPU only"),
                     {"hidden", "float64", "float32, bfloat16 or float16 on this device"});
  }
  if (hidden.shape.size() < 2) {
    return InvalidField("hidden", ShapeText(hidden.shape), "of shape [..., hidden_size] with at least 2 dimensions");
  }
  if (hidden.shape.back() < 1) {
    return InvalidField("hidden", ShapeText(hidden.shape), "of shape [..., hidden_size] with hidden_size at least 1");
  }
  return absl::OkStatus();
}

absl::Status CheckWeight(const TensorSpec& weight, const TensorSpec& hidden) {
  absl::Status status = CheckElements("weight", weight.shape);
  if (!status.ok()) return status;
  if (weight.dtype != hidden.dtype) {
    return RefuseDType("weight", weight.dtype, absl::StrCat(DTypeName(hidden.dtype), ", as hidden is"));
  }
  if (weight.shape.size() != 2 || weight.shape[0] < 1 || weight.shape[1] < 1) {
    return InvalidField("weight", ShapeText(weight.shape), "of shape [vocab_size, hidden_size], both at least 1");
  }
  if (weight.shape[1] != hidden.shape.back()) {
    return InvalidField("hidden", ShapeText(hidden.shape),
                        absl::StrCat("of shape [..., ", weight.shape[1], "], as wide as weight"));
  }
  return absl::OkStatus();
}

absl::Status CheckBias(const TensorSpec& bias, const Problem& problem) {
  absl::Status status = CheckElements("bias", bias.shape);
  if (!status.ok()) return status;
  if (bias.dtype != problem.dtype) {
    return RefuseDType("bias", bias.dtype, absl::StrCat(DTypeName(problem.dtype), ", as hidden is"));
  }
  if (bias.shape != std::vector<std::int64_t>{problem.vocab_size}) {
    return InvalidField("bias", ShapeText(bias.shape), absl::StrCat("of shape [", problem.vocab_size, "]"));
  }
  return absl::OkStatus();
}

// `targets` or `grad_logp`: hidden's shape without its last dimension.
absl::Status CheckPerToken(absl::string_view field, const TensorSpec& spec, const Problem& problem) {
  absl::Status status = CheckElements(field, spec.shape);
  if (!status.ok()) return status;
  if (spec.shape != problem.leading_shape) {
    return InvalidField(field, ShapeText(spec.shape),
                        absl::StrCat("of shape ", ShapeText(problem.leading_shape), ", hidden's without its last"));
  }
  return absl::OkStatus();
}

std::int64_t ReadTarget(const std::byte* data, std::int64_t index, DType dtype) {
  if (dtype == DType::kInt32) {
    std::int32_t value = 0;
    std::memcpy(&value, data + index * static_cast<std::int64_t>(sizeof(value)), sizeof(value));
    return value;
  }
  std::int64_t value = 0;
  std::memcpy(&value, data + index * static_cast<std::int64_t>(sizeof(value)), sizeof(value));
  return value;
}

}  // namespace

absl::StatusOr<Problem> ValidateProblem(const TensorSpecs& specs, bool on_cpu) {
  absl::Status status = CheckHidden(specs.hidden, on_cpu);
  if (!status.ok()) return status;
  status = CheckWeight(specs.weight, specs.hidden);
  if (!status.ok()) return status;

  Problem problem;
  problem.leading_shape.assign(specs.hidden.shape.begin(), specs.hidden.shape.end() - 1);
  problem.num_tokens = *NumElements("hidden", problem.leading_shape);  // Its product divides hidden's, checked above.
  problem.vocab_size = specs.weight.shape[0];
  problem.hidden_size = specs.weight.shape[1];
  problem.dtype = specs.hidden.dtype;
  problem.targets_dtype = specs.targets.dtype;
  problem.has_bias = specs.bias.has_value();
  problem.has_grad_logp = specs.grad_logp.has_value();

  const auto logits = CheckedMultiply(problem.num_tokens, problem.vocab_size);
  if (!logits || !CheckedMultiply(*logits, kWidestElementBytes)) {
    return InvalidField("weight", ShapeText(specs.weight.shape),
                        absl::StrCat("small enough for ", problem.num_tokens, " tokens: fewer than 2^60 logits"));
  }
  if (specs.bias) {
    status = CheckBias(*specs.bias, problem);
    if (!status.ok()) return status;
  }
  if (problem.targets_dtype != DType::kInt32 && problem.targets_dtype != DType::kInt64) {
    return RefuseDType("targets", problem.targets_dtype, "int32 or int64");
  }
  status = CheckPerToken("targets", specs.targets, problem);
  if (!status.ok()) return status;
  if (specs.grad_logp) {
    if (specs.grad_logp->dtype != problem.LogpDtype()) {
      return RefuseDType("grad_logp", specs.grad_logp->dtype,
                         absl::StrCat(DTypeName(problem.LogpDtype()), " for ", DTypeName(problem.dtype), " operands"));
    }
    status = CheckPerToken("grad_logp", *specs.grad_logp, problem);
    if (!status.ok()) return status;
  }
  return problem;
}

absl::Status ValidateByteCount(absl::string_view field, const TensorSpec& spec, std::int64_t bytes) {
  const absl::StatusOr<std::int64_t> expected = NumBytes(field, spec);
  if (!expected.ok()) return expected.status();
  if (*expected == bytes) return absl::OkStatus();
  return InvalidField(
      field, absl::StrCat(bytes, " bytes"),
      absl::StrCat(*expected, " bytes, for ", DTypeName(spec.dtype), " of shape ", ShapeText(spec.shape)));
}

absl::Status ValidateTargets(const Problem& problem, const void* targets) {
  const auto* data = static_cast<const std::byte*>(targets);
  for (std::int64_t index = 0; index < problem.num_tokens; ++index) {
    const std::int64_t target = ReadTarget(data, index, problem.targets_dtype);
    if (target >= 0 && target < problem.vocab_size) continue;
    const std::string limit = absl::StrCat("in [0, ", problem.vocab_size, ")");
    return WithField(
        absl::InvalidArgumentError(absl::StrCat("targets: ", target, " at index ", index, " must be ", limit)),
        {"targets", absl::StrCat(target), limit});
  }
  return absl::OkStatus();
}

}  // namespace keval::linear_logp
