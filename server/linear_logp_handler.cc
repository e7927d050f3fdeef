#include "server/linear_logp_handler.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "core/linear_logp/byte_count.h"
#include "core/linear_logp/chunk_plan.h"
#include "server/host_buffer.h"
#include "server/proto_convert.h"
#include "server/session_batch.h"

namespace keval::server {
namespace {

using linear_logp::HostTensor;

absl::StatusOr<std::int64_t> TensorBytes(const HostTensor& tensor) { return NumBytes("result", tensor.spec); }

absl::Status SetOperand(const HostTensor& tensor, v1::Operand* operand) {
  absl::StatusOr<std::int64_t> bytes = TensorBytes(tensor);
  if (!bytes.ok()) return bytes.status();
  *operand->mutable_spec() = ToProto(tensor.spec);
  operand->set_data(tensor.data, static_cast<std::size_t>(*bytes));
  return absl::OkStatus();
}

// A problem of the given sizes, for questions that need no tensors.
absl::StatusOr<linear_logp::Problem> ProblemOf(const v1::PlanRequest& request, DType dtype, bool on_cpu) {
  const std::int64_t n = request.num_tokens();
  const std::int64_t d = request.hidden_size();
  const std::int64_t v = request.vocab_size();
  // By the request's own names, where the check below would speak of a tensor that nobody sent.
  if (!IsFloating(dtype)) {
    return InvalidField("dtype", DTypeName(dtype), "float32, bfloat16, float16 or, on a CPU, float64");
  }
  if (dtype == DType::kFloat64 && !on_cpu) {
    return WithField(absl::FailedPreconditionError("dtype: float64 is computed on a CPU only"),
                     {"dtype", "float64", "float32, bfloat16 or float16 on this device"});
  }
  const DType logp = dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  linear_logp::TensorSpecs specs{
      {dtype, {n, d}}, {dtype, {v, d}}, std::nullopt, {DType::kInt64, {n}}, TensorSpec{logp, {n}}};
  if (request.bias()) specs.bias = TensorSpec{dtype, {v}};
  auto problem = linear_logp::ValidateProblem(specs, on_cpu);
  if (problem.ok()) return problem;
  // Whole numbers of a floating type, each in its range: what is left to refuse is a product of two of them.
  const absl::string_view largest = n >= std::max(d, v) ? "num_tokens" : (v >= d ? "vocab_size" : "hidden_size");
  return InvalidField(largest, absl::StrCat(std::max({n, d, v})),
                      "small enough that each tensor has fewer than 2^60 elements");
}

// All of a request at once. `batch`: what became of it, where it is a micro-batch.
absl::StatusOr<linear_logp::Outputs> ComputeOn(GradientBackend& backend, const GradientCall& request,
                                               const linear_logp::ContinueCheck& check, v1::SessionBatchResult* batch) {
  if (request.session != nullptr) return AddBatch(backend, request, check, batch);
  if (!request.problem.has_grad_logp) return backend.Forward(request.problem, request.options, request.inputs, check);
  return backend.Gradient(request.problem, request.options, request.want, request.inputs, check);
}

}  // namespace

absl::StatusOr<v1::PlanResponse> LinearLogpHandler::Plan(const CallContext& call,
                                                         const v1::PlanRequest& request) const {
  absl::StatusOr<linear_logp::Options> options = FromProto(request.options());
  if (!options.ok()) return options.status();
  if (absl::Status status = CheckVariant(options->variant, *context_.variants); !status.ok()) return status;
  absl::StatusOr<const ServedDevice*> device = context_.devices->ForGradients(request.options().device());
  if (!device.ok()) return device.status();
  absl::StatusOr<linear_logp::ChunkPlan> plan = linear_logp::MakeChunkPlan(request.num_tokens(), request.hidden_size(),
                                                                           request.vocab_size(), options->chunk_elems);
  if (!plan.ok()) return plan.status();
  DType dtype = DType::kFloat32;
  if (request.dtype() != v1::DATA_TYPE_UNSPECIFIED) {
    absl::StatusOr<DType> asked = FromProto("dtype", request.dtype());
    if (!asked.ok()) return asked.status();
    dtype = *asked;
  }
  absl::StatusOr<linear_logp::Problem> problem = ProblemOf(request, dtype, (*device)->on_cpu);
  if (!problem.ok()) return problem.status();

  v1::PlanResponse response;
  response.set_chunk_tokens(plan->chunk_tokens);
  response.set_chunks(plan->chunks);
  response.set_base_bytes(plan->base_bytes);
  response.set_candidate_bytes(plan->candidate_bytes);
  response.set_saving_bytes(plan->saving_bytes);
  response.set_add_ops_saved(plan->add_ops_saved);
  absl::StatusOr<Executor::Timing> ran = (*device)->executor->Run(
      call.check, Executor::Needs::kNothing,
      [&](GradientBackend& backend, const linear_logp::ContinueCheck& /*check*/) -> absl::Status {
        for (const linear_logp::VariantDescription& variant : *context_.variants) {
          linear_logp::Options asked = *options;
          asked.variant = variant.name;
          absl::StatusOr<linear_logp::Support> support = backend.Supports(*problem, asked);
          if (!support.ok()) return support.status();
          v1::VariantSupport* const entry = response.add_variants();
          entry->set_variant(variant.name);
          entry->set_supported(support->supported);
          entry->set_reason(support->reason);
        }
        absl::StatusOr<std::int64_t> bytes = backend.EstimateBytes(*problem, *options, linear_logp::Want{});
        if (!bytes.ok()) return bytes.status();
        response.set_estimated_device_bytes(*bytes);
        return absl::OkStatus();
      });
  if (!ran.ok()) return ran.status();
  return response;
}

absl::StatusOr<LinearLogpHandler::Computed> LinearLogpHandler::Compute(const CallContext& call,
                                                                       const GradientCall& request) {
  Computed computed;
  absl::StatusOr<Executor::Timing> timing = request.device->executor->Run(
      call.check, Executor::Needs::kDevice,
      [&](GradientBackend& backend, const linear_logp::ContinueCheck& check) -> absl::Status {
        absl::StatusOr<linear_logp::Outputs> outputs = ComputeOn(backend, request, check, &computed.batch);
        if (!outputs.ok()) return outputs.status();
        computed.outputs = *std::move(outputs);
        return absl::OkStatus();
      });
  if (!timing.ok()) return timing.status();
  computed.timing = *timing;
  RenewSession(request);
  return computed;
}

void LinearLogpHandler::RenewSession(const GradientCall& request) const {
  if (request.session != nullptr) context_.sessions->Renew(*request.session);
}

absl::StatusOr<LinearLogpHandler::Computed> LinearLogpHandler::ComputeUnary(
    const CallContext& call, const v1::LinearLogpOptions& options, const v1::LinearLogpInputs& inputs,
    const google::protobuf::RepeatedField<int>& want, const v1::SessionBatch* batch) {
  GradientCall parsed;
  if (absl::Status status =
          ParseGradientCall(context_, call.principal, Entrance::kUnary, options, inputs, want, batch, &parsed);
      !status.ok()) {
    return status;
  }
  absl::StatusOr<ByteBudget::Reservation> reservation = request_bytes_->Reserve(
      linear_logp::SaturatingSum({parsed.inline_bytes, parsed.result_bytes, parsed.table_bytes}));
  if (!reservation.ok()) return reservation.status();
  absl::StatusOr<Computed> computed = Compute(call, parsed);
  if (computed.ok()) computed->reservation = *std::move(reservation);
  return computed;
}

absl::StatusOr<v1::ForwardResponse> LinearLogpHandler::Forward(const CallContext& call,
                                                               const v1::ForwardRequest& request) {
  if (request.inputs().has_grad_logp()) return InvalidField("grad_logp", "given", "absent in a forward call");
  absl::StatusOr<Computed> computed = ComputeUnary(call, request.options(), request.inputs(), {}, nullptr);
  if (!computed.ok()) return computed.status();
  v1::ForwardResponse response;
  if (absl::Status status = SetOperand(computed->outputs.logp, response.mutable_logp()); !status.ok()) return status;
  *response.mutable_dispatch() = ToProto(computed->outputs.dispatch);
  *response.mutable_timing() = ToProto(computed->timing);
  return response;
}

absl::StatusOr<v1::GradientResponse> LinearLogpHandler::Gradient(const CallContext& call,
                                                                 const v1::GradientRequest& request) {
  absl::StatusOr<Computed> computed = ComputeUnary(call, request.options(), request.inputs(), request.want(),
                                                   request.has_session_batch() ? &request.session_batch() : nullptr);
  if (!computed.ok()) return computed.status();
  const linear_logp::Outputs& outputs = computed->outputs;
  v1::GradientResponse response;
  absl::Status status = SetOperand(outputs.logp, response.mutable_logp());
  if (outputs.grad_hidden.has_value()) status.Update(SetOperand(*outputs.grad_hidden, response.mutable_grad_hidden()));
  if (outputs.grad_weight.has_value()) status.Update(SetOperand(*outputs.grad_weight, response.mutable_grad_weight()));
  if (outputs.grad_bias.has_value()) status.Update(SetOperand(*outputs.grad_bias, response.mutable_grad_bias()));
  if (!status.ok()) return status;
  *response.mutable_dispatch() = ToProto(outputs.dispatch);
  *response.mutable_timing() = ToProto(computed->timing);
  if (request.has_session_batch()) *response.mutable_session_batch() = computed->batch;
  return response;
}

std::optional<linear_logp::ChunkPlan> LinearLogpHandler::PlanChunks(const GradientCall& request) const {
  const bool awaits_hidden = !request.awaited.empty() && request.awaited.back().field == "hidden";
  const linear_logp::Problem& problem = request.problem;
  if (!awaits_hidden || problem.num_tokens == 0) return std::nullopt;
  for (const linear_logp::VariantDescription& variant : *context_.variants) {
    if (variant.name != request.options.variant || !variant.takes_chunks) continue;
    // Can't fail for a problem that was validated.
    const auto plan = linear_logp::MakeChunkPlan(problem.num_tokens, problem.hidden_size, problem.vocab_size,
                                                 request.options.chunk_elems);
    if (plan.ok()) return *plan;
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<PayloadSegment>> LinearLogpHandler::MakeSegments(GradientStream* stream) const {
  std::vector<PayloadSegment> segments;
  for (const AwaitedOperand& awaited : stream->call_.awaited) {
    if (stream->pipeline_ != nullptr && awaited.field == "hidden") {
      segments.push_back({awaited.field, nullptr, awaited.bytes,
                          [pipeline = stream->pipeline_.get()](auto piece) { return pipeline->TakeHidden(piece); }});
      continue;
    }
    absl::StatusOr<std::shared_ptr<HostBuffer>> buffer = HostBuffer::Allocate(memory_, awaited.bytes, {});
    if (!buffer.ok()) return buffer.status();
    awaited.tensor->data = (*buffer)->data();
    awaited.tensor->owner = *buffer;
    segments.push_back({awaited.field, (*buffer)->data(), awaited.bytes});
  }
  return segments;
}

absl::StatusOr<std::unique_ptr<GradientStream>> LinearLogpHandler::StartStream(const CallContext& call,
                                                                               const v1::StreamGradientRequest& first,
                                                                               const wire::FrameData& data,
                                                                               GradientSender::Send send) {
  if (!first.has_header()) return InvalidField("header", "absent", "in the first message");
  auto stream = absl::WrapUnique(new GradientStream());
  stream->header_ = first.header();  // Kept: inline operands are read where they lie.
  GradientCall& parsed = stream->call_;
  if (absl::Status status =
          ParseGradientCall(context_, call.principal, Entrance::kStream, stream->header_.options(),
                            stream->header_.inputs(), stream->header_.want(),
                            stream->header_.has_session_batch() ? &stream->header_.session_batch() : nullptr, &parsed);
      !status.ok()) {
    return status;
  }
  // One reservation for all, so that two large requests can't each hold half and wait for the other's.
  const bool interleave = stream->header_.interleave();
  const std::optional<linear_logp::ChunkPlan> plan = PlanChunks(parsed);
  std::vector<std::int64_t> parts = {parsed.inline_bytes, parsed.awaited_bytes, parsed.result_bytes,
                                     parsed.table_bytes};
  if (plan.has_value()) {
    parts.push_back(GradientPipeline::MemoryBytes(parsed, *plan, interleave));
    parts.push_back(-parsed.awaited.back().bytes);
    if (interleave) parts.push_back(-parsed.token_result_bytes);
  }
  std::int64_t all = 0;
  for (const std::int64_t part : parts) {
    if (__builtin_add_overflow(all, part, &all)) all = std::numeric_limits<std::int64_t>::max();
  }
  absl::StatusOr<ByteBudget::Reservation> reservation = request_bytes_->Reserve(all);
  if (!reservation.ok()) return reservation.status();
  stream->reservation_ = std::make_shared<ByteBudget::Reservation>(*std::move(reservation));
  stream->sender_ =
      std::make_unique<GradientSender>(call, parsed, stream->header_.digest(), stream->reservation_, std::move(send));
  if (plan.has_value()) {
    auto pipeline = GradientPipeline::Create(call, parsed, *plan, interleave, stream->sender_.get(), memory_);
    if (!pipeline.ok()) return pipeline.status();
    stream->pipeline_ = *std::move(pipeline);
  }
  absl::StatusOr<std::vector<PayloadSegment>> segments = MakeSegments(stream.get());
  if (!segments.ok()) return segments.status();
  const bool awaits_targets = !segments->empty() && segments->front().name == "targets";  // They are the first.
  stream->receiver_ = std::make_unique<PayloadReceiver>(
      *std::move(segments), stream->header_.digest(), [call = &parsed, awaits_targets](std::size_t segment) {
        return awaits_targets && segment == 0 ? CheckTargets(*call) : absl::OkStatus();
      });
  if (absl::Status status = stream->Take(first, data); !status.ok()) return status;
  return stream;
}

absl::Status LinearLogpHandler::FinishStream(const CallContext& call, GradientStream* stream) {
  if (absl::Status status = stream->receiver_->Finish(); !status.ok()) return status;
  if (stream->pipeline_ != nullptr) {
    absl::Status status = stream->pipeline_->Finish();
    if (status.ok()) RenewSession(stream->call_);
    return status;
  }
  absl::StatusOr<Computed> computed = Compute(call, stream->call_);
  if (!computed.ok()) return computed.status();
  stream->receiver_.reset();
  stream->call_.inputs = {};  // A slow reader holds the results alone.
  const linear_logp::Outputs& outputs = computed->outputs;
  GradientSender& sender = *stream->sender_;
  absl::Status status = sender.Start();
  const auto send = [&](ResultTensor which, const std::optional<HostTensor>& tensor) {
    if (status.ok() && tensor.has_value()) status = sender.Tensor(which, *tensor);
  };
  send(ResultTensor::kLogp, outputs.logp);
  send(ResultTensor::kGradHidden, outputs.grad_hidden);
  send(ResultTensor::kGradWeight, outputs.grad_weight);
  send(ResultTensor::kGradBias, outputs.grad_bias);
  if (!status.ok()) return status;
  return sender.Done(outputs.dispatch, computed->timing, stream->call_.session != nullptr ? &computed->batch : nullptr);
}

}  // namespace keval::server
