#include "server/gradient_request.h"

#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/field_error.h"
#include "server/proto_convert.h"

namespace keval::server {
namespace {

using linear_logp::HostTensor;

// An operand's spec and, where they are here, its bytes.
struct ParsedOperand {
  HostTensor tensor;
  std::int64_t bytes = 0;
  bool awaited = false;
  bool is_inline = false;
  absl::string_view inline_data;
};

absl::StatusOr<ParsedOperand> ParseOperand(absl::string_view field, const v1::Operand& operand,
                                           absl::string_view principal, Entrance entrance, TensorStore* tensors) {
  ParsedOperand parsed;
  if (operand.source_case() == v1::Operand::kHandle) {
    absl::StatusOr<StoredTensor> stored = tensors->Find(principal, operand.handle());
    if (!stored.ok()) {
      return WithField(absl::Status(stored.status().code(), absl::StrCat(field, ".", stored.status().message())),
                       {absl::StrCat(field, ".handle"), operand.handle().substr(0, 64), ""});
    }
    if (operand.has_spec()) {
      absl::StatusOr<TensorSpec> spec = FromProto(field, operand.spec());
      if (!spec.ok()) return spec.status();
      if (*spec != stored->spec) {
        return InvalidField(field, SpecText(*spec), absl::StrCat(SpecText(stored->spec), ", as the stored tensor is"));
      }
    }
    parsed.tensor = {stored->spec, stored->buffer->data(), stored->buffer};
    parsed.bytes = stored->buffer->size();
    return parsed;
  }
  if (!operand.has_spec()) return InvalidField(field, "no spec", "given with dtype and shape");
  absl::StatusOr<TensorSpec> spec = FromProto(field, operand.spec());
  if (!spec.ok()) return spec.status();
  absl::StatusOr<std::int64_t> bytes = NumBytes(field, *spec);
  if (!bytes.ok()) return bytes.status();
  parsed.tensor.spec = *std::move(spec);
  parsed.bytes = *bytes;
  if (entrance == Entrance::kStream && operand.source_case() == v1::Operand::SOURCE_NOT_SET) {
    parsed.awaited = true;
  } else {
    parsed.is_inline = true;
    parsed.inline_data = operand.data();
  }
  return parsed;
}

// Shape and dtype decide how many bytes there must be; asked after the shapes themselves were found right, whose
// refusals say more.
absl::Status CheckInlineBytes(absl::string_view field, const ParsedOperand& operand) {
  if (!operand.is_inline || static_cast<std::int64_t>(operand.inline_data.size()) == operand.bytes) {
    return absl::OkStatus();
  }
  return InvalidField(field, absl::StrCat(operand.inline_data.size(), " bytes"),
                      absl::StrCat(operand.bytes, " bytes for ", SpecText(operand.tensor.spec)));
}

absl::StatusOr<linear_logp::Want> ParseWant(const google::protobuf::RepeatedField<int>& want, bool has_bias) {
  if (want.empty()) return linear_logp::Want{true, true, has_bias};
  linear_logp::Want result{false, false, false};
  for (const int value : want) {
    switch (value) {
      case v1::WANT_HIDDEN:
        result.hidden = true;
        break;
      case v1::WANT_WEIGHT:
        result.weight = true;
        break;
      case v1::WANT_BIAS:
        if (!has_bias) return InvalidField("want", "bias", "hidden or weight where there is no bias");
        result.bias = true;
        break;
      default:
        return InvalidField("want", absl::StrCat(value), "hidden, weight or bias");
    }
  }
  return result;
}

std::int64_t DtypeBytes(const GradientCall& call) {
  return call.options.grad_dtype == linear_logp::GradDtype::kFloat32 ? DTypeSize(call.problem.LogpDtype())
                                                                     : DTypeSize(call.problem.dtype);
}

// Sums that would overflow stop at the largest int64: more than any limit.
std::int64_t Add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}
std::int64_t Multiply(std::int64_t a, std::int64_t b) { return CheckedMultiply(a, b).value_or(INT64_MAX); }

void CountResultBytes(GradientCall* call) {
  const linear_logp::Problem& problem = call->problem;
  const std::int64_t element = DtypeBytes(*call);
  std::int64_t bytes = Multiply(problem.num_tokens, DTypeSize(problem.LogpDtype()));
  if (call->want.hidden) bytes = Add(bytes, Multiply(Multiply(problem.num_tokens, problem.hidden_size), element));
  call->token_result_bytes = bytes;
  if (call->want.weight) bytes = Add(bytes, Multiply(Multiply(problem.vocab_size, problem.hidden_size), element));
  if (call->want.bias) bytes = Add(bytes, Multiply(problem.vocab_size, element));
  call->result_bytes = bytes;
}

}  // namespace

absl::Status CheckVariant(absl::string_view name, const std::vector<linear_logp::VariantDescription>& variants) {
  for (const linear_logp::VariantDescription& variant : variants) {
    if (variant.name == name) return absl::OkStatus();
  }
  const std::string known = absl::StrJoin(
      variants, ", ",
      [](std::string* out, const linear_logp::VariantDescription& variant) { absl::StrAppend(out, variant.name); });
  return InvalidField("variant", name, absl::StrCat("one of ", known));
}

absl::Status CheckTargets(const GradientCall& call) {
  return linear_logp::ValidateTargets(call.problem, call.inputs.targets.data);
}

absl::Status ParseGradientCall(const RequestContext& context, absl::string_view principal, Entrance entrance,
                               const v1::LinearLogpOptions& options, const v1::LinearLogpInputs& inputs,
                               const google::protobuf::RepeatedField<int>& want, GradientCall* call) {
  absl::StatusOr<linear_logp::Options> parsed_options = FromProto(options);
  if (!parsed_options.ok()) return parsed_options.status();
  call->options = *std::move(parsed_options);
  if (absl::Status status = CheckVariant(call->options.variant, *context.variants); !status.ok()) return status;
  absl::StatusOr<const ServedDevice*> device = context.devices->ForGradients(options.device());
  if (!device.ok()) return device.status();
  call->device = *device;

  // In the order of the stream's payload.
  struct Field {
    const char* name;
    bool present;
    bool required;
    const v1::Operand& operand;
    ParsedOperand parsed;
  };
  std::array<Field, 5> fields = {{{"targets", inputs.has_targets(), true, inputs.targets(), {}},
                                  {"grad_logp", inputs.has_grad_logp(), false, inputs.grad_logp(), {}},
                                  {"bias", inputs.has_bias(), false, inputs.bias(), {}},
                                  {"weight", inputs.has_weight(), true, inputs.weight(), {}},
                                  {"hidden", inputs.has_hidden(), true, inputs.hidden(), {}}}};
  for (Field& field : fields) {
    if (!field.present) {
      if (field.required) return InvalidField(field.name, "absent", "given");
      continue;
    }
    absl::StatusOr<ParsedOperand> parsed =
        ParseOperand(field.name, field.operand, principal, entrance, context.tensors);
    if (!parsed.ok()) return parsed.status();
    field.parsed = *std::move(parsed);
  }
  const auto& [targets, grad_logp, bias, weight, hidden] = fields;
  linear_logp::TensorSpecs specs{hidden.parsed.tensor.spec, weight.parsed.tensor.spec, std::nullopt,
                                 targets.parsed.tensor.spec, std::nullopt};
  if (bias.present) specs.bias = bias.parsed.tensor.spec;
  if (grad_logp.present) specs.grad_logp = grad_logp.parsed.tensor.spec;
  absl::StatusOr<linear_logp::Problem> problem = linear_logp::ValidateProblem(specs, call->device->on_cpu);
  if (!problem.ok()) return problem.status();
  call->problem = *std::move(problem);
  absl::StatusOr<linear_logp::Want> parsed_want = ParseWant(want, bias.present);
  if (!parsed_want.ok()) return parsed_want.status();
  call->want = *parsed_want;
  if (!want.empty() && !grad_logp.present) {
    return InvalidField("grad_logp", "absent", "given where a gradient is wanted");
  }
  if (!grad_logp.present) call->want = {false, false, false};

  std::int64_t operand_bytes = 0;
  for (const Field& field : fields) {
    if (!field.present) continue;
    operand_bytes = Add(operand_bytes, field.parsed.bytes);
    if (field.parsed.is_inline) call->inline_bytes = Add(call->inline_bytes, std::ssize(field.operand.data()));
    if (field.parsed.awaited) call->awaited_bytes = Add(call->awaited_bytes, field.parsed.bytes);
  }
  if (call->inline_bytes > context.limits.max_unary_bytes) {
    return InvalidField(
        "inputs", absl::StrCat(call->inline_bytes, " bytes"),
        absl::StrCat("at most ", context.limits.max_unary_bytes, " bytes in one message; stream larger ones"));
  }
  for (const Field& field : fields) {
    if (absl::Status status = CheckInlineBytes(field.name, field.parsed); !status.ok()) return status;
  }
  CountResultBytes(call);
  if (entrance == Entrance::kUnary && call->result_bytes > context.limits.max_unary_result_bytes) {
    return InvalidField("inputs", absl::StrCat(call->result_bytes, " bytes of results"),
                        absl::StrCat("at most ", context.limits.max_unary_result_bytes,
                                     " bytes of results in one message; stream larger ones"));
  }
  const std::int64_t device_bytes = Add(operand_bytes, call->result_bytes);
  if (call->device->memory_bytes > 0 && device_bytes > call->device->memory_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("memory of device ", call->device->name, ": ", device_bytes,
                                                     " bytes needed, at most ", call->device->memory_bytes, " free"));
  }

  const auto take = [call](Field* field, HostTensor* tensor) {
    *tensor = std::move(field->parsed.tensor);
    // Inline bytes stay in the message; protobuf keeps them contiguous.
    if (field->parsed.is_inline) tensor->data = reinterpret_cast<const std::byte*>(field->operand.data().data());
    if (field->parsed.awaited) call->awaited.push_back({field->name, field->parsed.bytes, tensor});
  };
  take(fields.data(), &call->inputs.targets);
  if (grad_logp.present) take(&fields[1], &call->inputs.grad_logp.emplace());
  if (bias.present) take(&fields[2], &call->inputs.bias.emplace());
  take(&fields[3], &call->inputs.weight);
  take(&fields[4], &call->inputs.hidden);
  return fields[0].parsed.awaited ? absl::OkStatus() : CheckTargets(*call);
}

}  // namespace keval::server
