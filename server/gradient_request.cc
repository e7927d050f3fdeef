#include "server/gradient_request.h"

#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/field_error.h"
#include "core/linear_logp/byte_count.h"
#include "server/proto_convert.h"

namespace keval::server {
namespace {

using linear_logp::HostTensor;
using linear_logp::SaturatingProduct;
using linear_logp::SaturatingSum;

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

void CountResultBytes(GradientCall* call) {
  const linear_logp::Problem& problem = call->problem;
  const std::int64_t element = DtypeBytes(*call);
  const linear_logp::Want returned = call->Returned();
  const auto head_bytes = [&](bool weight, bool bias, std::int64_t size) {
    return SaturatingSum({weight ? SaturatingProduct({problem.vocab_size, problem.hidden_size, size}) : 0,
                          bias ? SaturatingProduct({problem.vocab_size, size}) : 0});
  };
  std::int64_t bytes = SaturatingProduct({problem.num_tokens, DTypeSize(problem.LogpDtype())});
  if (returned.hidden) {
    bytes = SaturatingSum({bytes, SaturatingProduct({problem.num_tokens, problem.hidden_size, element})});
  }
  call->token_result_bytes = bytes;
  call->result_bytes = SaturatingSum({bytes, head_bytes(returned.weight, returned.bias, element)});
  if (call->session != nullptr) {
    call->table_bytes = head_bytes(call->want.weight, call->want.bias, DTypeSize(problem.LogpDtype()));
  }
}

// An operand of the request and what came of it.
struct Field {
  const char* name;
  bool present;
  bool required;
  const v1::Operand& operand;
  ParsedOperand parsed;
};

// In the order of the stream's payload.
struct Fields {
  Field targets;
  Field grad_logp;
  Field bias;
  Field weight;
  Field hidden;
  std::array<Field*, 5> All() { return {&targets, &grad_logp, &bias, &weight, &hidden}; }
  std::array<const Field*, 5> All() const { return {&targets, &grad_logp, &bias, &weight, &hidden}; }
};

absl::Status ParseOptions(const RequestContext& context, const v1::LinearLogpOptions& options, GradientCall* call) {
  absl::StatusOr<linear_logp::Options> parsed = FromProto(options);
  if (!parsed.ok()) return parsed.status();
  call->options = *std::move(parsed);
  if (absl::Status status = CheckVariant(call->options.variant, *context.variants); !status.ok()) return status;
  if (call->session != nullptr) {
    call->device = call->session->head().device;
    if (options.device().empty() || options.device() == call->device->name) return absl::OkStatus();
    return InvalidField("device", options.device(), absl::StrCat(call->device->name, ", where the session is"));
  }
  absl::StatusOr<const ServedDevice*> device = context.devices->ForGradients(options.device());
  if (!device.ok()) return device.status();
  call->device = *device;
  return absl::OkStatus();
}

absl::Status ParseBatch(const RequestContext& context, absl::string_view principal, const v1::SessionBatch& batch,
                        GradientCall* call) {
  if (absl::Status status = CheckSessionId("batch_id", batch.batch_id()); !status.ok()) return status;
  absl::StatusOr<std::shared_ptr<GradientSession>> session = context.sessions->Use(principal, batch.session());
  if (!session.ok()) return session.status();
  call->session = *std::move(session);
  call->batch_id = batch.batch_id();
  return absl::OkStatus();
}

// `in_session`: weight and bias are a session's.
absl::StatusOr<Fields> ParseFields(const RequestContext& context, absl::string_view principal, Entrance entrance,
                                   const v1::LinearLogpInputs& inputs, bool in_session) {
  Fields fields{{"targets", inputs.has_targets(), true, inputs.targets(), {}},
                {"grad_logp", inputs.has_grad_logp(), false, inputs.grad_logp(), {}},
                {"bias", inputs.has_bias(), false, inputs.bias(), {}},
                {"weight", inputs.has_weight(), !in_session, inputs.weight(), {}},
                {"hidden", inputs.has_hidden(), true, inputs.hidden(), {}}};
  for (const Field* const field : {&fields.weight, &fields.bias}) {
    if (in_session && field->present) return InvalidField(field->name, "given", "absent: it is the session's");
  }
  for (Field* const field : fields.All()) {
    if (!field->present) {
      if (field->required) return InvalidField(field->name, "absent", "given");
      continue;
    }
    absl::StatusOr<ParsedOperand> parsed =
        ParseOperand(field->name, field->operand, principal, entrance, context.tensors);
    if (!parsed.ok()) return parsed.status();
    field->parsed = *std::move(parsed);
  }
  return fields;
}

// The shapes, and which gradients are wanted of them. REQUIRES call->device and call->session.
absl::Status ParseProblem(const Fields& fields, const google::protobuf::RepeatedField<int>& want, GradientCall* call) {
  linear_logp::TensorSpecs specs{fields.hidden.parsed.tensor.spec, fields.weight.parsed.tensor.spec, std::nullopt,
                                 fields.targets.parsed.tensor.spec, std::nullopt};
  if (fields.bias.present) specs.bias = fields.bias.parsed.tensor.spec;
  if (call->session != nullptr) {
    const GradientSession::Head& head = call->session->head();
    specs.weight = head.weight;
    specs.bias = head.bias;
    if (specs.hidden.dtype != head.weight.dtype) {
      return InvalidField("hidden", DTypeName(specs.hidden.dtype),
                          absl::StrCat(DTypeName(head.weight.dtype), ", as the session's weight is"));
    }
  }
  if (fields.grad_logp.present) specs.grad_logp = fields.grad_logp.parsed.tensor.spec;
  absl::StatusOr<linear_logp::Problem> problem = linear_logp::ValidateProblem(specs, call->device->on_cpu);
  if (!problem.ok()) return problem.status();
  call->problem = *std::move(problem);
  absl::StatusOr<linear_logp::Want> parsed_want = ParseWant(want, specs.bias.has_value());
  if (!parsed_want.ok()) return parsed_want.status();
  call->want = *parsed_want;
  if (call->session != nullptr) {
    if (!fields.grad_logp.present) return InvalidField("grad_logp", "absent", "given in a session's micro-batch");
    call->want.weight = true;
    call->want.bias = specs.bias.has_value();
  }
  if (fields.grad_logp.present) return absl::OkStatus();
  if (!want.empty()) return InvalidField("grad_logp", "absent", "given where a gradient is wanted");
  call->want = {false, false, false};
  return absl::OkStatus();
}

void CountOperandBytes(const Fields& fields, GradientCall* call) {
  for (const Field* const field : fields.All()) {
    if (!field->present) continue;
    call->operand_bytes = SaturatingSum({call->operand_bytes, field->parsed.bytes});
    if (field->parsed.is_inline) {
      call->inline_bytes = SaturatingSum({call->inline_bytes, std::ssize(field->operand.data())});
    }
    if (field->parsed.awaited) call->awaited_bytes = SaturatingSum({call->awaited_bytes, field->parsed.bytes});
  }
}

// What one message may bring and take away, whether inline bytes are as many as their shapes say, and what the device
// could ever hold. REQUIRES that the call's bytes are counted.
absl::Status CheckBytes(const RequestLimits& limits, Entrance entrance, const Fields& fields,
                        const GradientCall& call) {
  if (call.inline_bytes > limits.max_unary_bytes) {
    return InvalidField("inputs", absl::StrCat(call.inline_bytes, " bytes"),
                        absl::StrCat("at most ", limits.max_unary_bytes, " bytes in one message; stream larger ones"));
  }
  for (const Field* const field : fields.All()) {
    if (absl::Status status = CheckInlineBytes(field->name, field->parsed); !status.ok()) return status;
  }
  if (entrance == Entrance::kUnary && call.result_bytes > limits.max_unary_result_bytes) {
    return InvalidField("inputs", absl::StrCat(call.result_bytes, " bytes of results"),
                        absl::StrCat("at most ", limits.max_unary_result_bytes,
                                     " bytes of results in one message; stream larger ones"));
  }
  const std::int64_t device_bytes = SaturatingSum({call.operand_bytes, call.result_bytes, call.table_bytes});
  if (call.device->memory_bytes > 0 && device_bytes > call.device->memory_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("memory of device ", call.device->name, ": ", device_bytes,
                                                     " bytes needed, at most ", call.device->memory_bytes, " free"));
  }
  return absl::OkStatus();
}

// Moves the operands to where they are computed on, in the order of the stream's payload.
void TakeFields(Fields* fields, GradientCall* call) {
  const auto take = [call](Field* field, HostTensor* tensor) {
    *tensor = std::move(field->parsed.tensor);
    // Inline bytes stay in the message; protobuf keeps them contiguous.
    if (field->parsed.is_inline) tensor->data = reinterpret_cast<const std::byte*>(field->operand.data().data());
    if (field->parsed.awaited) call->awaited.push_back({field->name, field->parsed.bytes, tensor});
  };
  take(&fields->targets, &call->inputs.targets);
  if (fields->grad_logp.present) take(&fields->grad_logp, &call->inputs.grad_logp.emplace());
  if (fields->bias.present) take(&fields->bias, &call->inputs.bias.emplace());
  if (fields->weight.present) take(&fields->weight, &call->inputs.weight);
  take(&fields->hidden, &call->inputs.hidden);
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
                               const google::protobuf::RepeatedField<int>& want, const v1::SessionBatch* batch,
                               GradientCall* call) {
  if (batch != nullptr) {
    if (absl::Status status = ParseBatch(context, principal, *batch, call); !status.ok()) return status;
  }
  if (absl::Status status = ParseOptions(context, options, call); !status.ok()) return status;
  absl::StatusOr<Fields> fields = ParseFields(context, principal, entrance, inputs, batch != nullptr);
  if (!fields.ok()) return fields.status();
  if (absl::Status status = ParseProblem(*fields, want, call); !status.ok()) return status;
  CountOperandBytes(*fields, call);
  CountResultBytes(call);
  if (absl::Status status = CheckBytes(context.limits, entrance, *fields, *call); !status.ok()) return status;
  TakeFields(&*fields, call);
  const bool targets_are_here = call->awaited.empty() || call->awaited.front().field != "targets";
  return targets_are_here ? CheckTargets(*call) : absl::OkStatus();
}

}  // namespace keval::server
