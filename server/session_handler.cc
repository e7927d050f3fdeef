#include "server/session_handler.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/field_error.h"
#include "base/shape.h"
#include "core/linear_logp/byte_count.h"
#include "server/host_buffer.h"
#include "server/operand.h"
#include "server/proto_convert.h"
#include "server/request_fields.h"

namespace keval::server {
namespace {

using linear_logp::SaturatingSum;

// REQUIRES specs that were found right: their bytes fit.
std::int64_t BytesOf(const TensorSpec& spec) { return NumBytes("sum", spec).value(); }

// The shapes of a head, as of a problem without tokens. A refusal names weight or bias, since nobody gave more.
absl::StatusOr<linear_logp::Problem> ProblemOf(const GradientSession::Head& head) {
  const TensorSpec& weight = head.weight;
  if (!IsFloating(weight.dtype)) {
    return InvalidField("weight", DTypeName(weight.dtype), "float32, bfloat16, float16 or, on a CPU, float64");
  }
  if (weight.dtype == DType::kFloat64 && !head.device->on_cpu) {
    return WithField(absl::FailedPreconditionError("weight: float64 is computed on a CPU only"),
                     {"weight", "float64", "float32, bfloat16 or float16 on this device"});
  }
  if (weight.shape.size() != 2 || weight.shape[0] < 1 || weight.shape[1] < 1) {
    return InvalidField("weight", ShapeText(weight.shape), "of shape [vocab_size, hidden_size], both at least 1");
  }
  return linear_logp::ValidateProblem(
      {{weight.dtype, {0, weight.shape[1]}}, weight, head.bias, {DType::kInt64, {0}}, std::nullopt},
      head.device->on_cpu);
}

}  // namespace

absl::Status SessionHandler::Keep(const ParsedOperand& operand, linear_logp::HostTensor* tensor) const {
  *tensor = operand.tensor;
  if (!operand.is_inline) return absl::OkStatus();
  // Counted by the session's own reservation.
  absl::StatusOr<std::shared_ptr<HostBuffer>> buffer = HostBuffer::Allocate(memory_, operand.bytes, {});
  if (!buffer.ok()) return buffer.status();
  std::memcpy((*buffer)->data(), operand.inline_data.data(), operand.inline_data.size());
  tensor->data = (*buffer)->data();
  tensor->owner = *std::move(buffer);
  return absl::OkStatus();
}

absl::StatusOr<SessionHandler::Opening> SessionHandler::ParseOpening(const CallContext& call,
                                                                     const v1::CreateSessionRequest& request) const {
  Opening opening;
  absl::StatusOr<const ServedDevice*> device = context_.devices->ForGradients(request.device());
  if (!device.ok()) return device.status();
  opening.head.device = *device;
  if (!request.has_weight()) return InvalidField("weight", "absent", "given");
  absl::StatusOr<ParsedOperand> weight =
      ParseOperand("weight", request.weight(), call.principal, Entrance::kUnary, context_.tensors);
  if (!weight.ok()) return weight.status();
  opening.weight = *std::move(weight);
  opening.head.weight = opening.weight.tensor.spec;
  if (request.has_bias()) {
    absl::StatusOr<ParsedOperand> bias =
        ParseOperand("bias", request.bias(), call.principal, Entrance::kUnary, context_.tensors);
    if (!bias.ok()) return bias.status();
    opening.bias = *std::move(bias);
    opening.head.bias = opening.bias.tensor.spec;
  }
  absl::StatusOr<linear_logp::Problem> problem = ProblemOf(opening.head);
  if (!problem.ok()) return problem.status();
  opening.problem = *std::move(problem);
  absl::Status status = CheckInlineBytes("weight", opening.weight);
  if (status.ok()) status = CheckInlineBytes("bias", opening.bias);
  if (!status.ok()) return status;

  opening.bytes = SaturatingSum({GradientSession::kRecordBytes, BytesOf(opening.head.SumOfWeight()),
                                 opening.head.bias.has_value() ? BytesOf(opening.head.SumOfBias()) : 0});
  std::int64_t inline_bytes = 0;
  for (const ParsedOperand* const operand : {&opening.weight, &opening.bias}) {
    if (operand->is_inline) inline_bytes += operand->bytes;
    const bool copied = operand->is_inline || !opening.head.device->on_cpu;
    if (copied) opening.bytes = SaturatingSum({opening.bytes, operand->bytes});
  }
  if (inline_bytes <= context_.limits.max_unary_bytes) return opening;
  return InvalidField("weight", absl::StrCat(inline_bytes, " bytes, with bias"),
                      absl::StrCat("at most ", context_.limits.max_unary_bytes,
                                   " bytes in one message; store larger ones and give their handles"));
}

absl::StatusOr<v1::GradientSession> SessionHandler::Create(const CallContext& call,
                                                           const v1::CreateSessionRequest& request) {
  absl::StatusOr<absl::Duration> lease = ParseLease(request.lease_ms());
  if (!lease.ok()) return lease.status();
  if (absl::Status status = context_.sessions->CheckRoom(call.principal); !status.ok()) return status;
  absl::StatusOr<Opening> opening = ParseOpening(call, request);
  if (!opening.ok()) return opening.status();
  absl::StatusOr<std::vector<ByteBudget::Reservation>> reservations =
      context_.tensors->Reserve(call.principal, opening->bytes);
  if (!reservations.ok()) return reservations.status();
  linear_logp::Inputs inputs;
  absl::Status kept = Keep(opening->weight, &inputs.weight);
  if (kept.ok() && opening->head.bias.has_value()) kept = Keep(opening->bias, &inputs.bias.emplace());
  if (!kept.ok()) return kept;
  std::unique_ptr<linear_logp::SessionTensors> tensors;
  absl::StatusOr<Executor::Timing> opened = opening->head.device->executor->Run(
      call.check, Executor::Needs::kDevice,
      [&](GradientBackend& backend, const linear_logp::ContinueCheck& /*check*/) -> absl::Status {
        absl::StatusOr<std::unique_ptr<linear_logp::SessionTensors>> made =
            backend.OpenSession(opening->problem, inputs);
        if (!made.ok()) return made.status();
        tensors = *std::move(made);
        return absl::OkStatus();
      });
  if (!opened.ok()) return opened.status();
  auto session =
      std::make_shared<GradientSession>(std::move(opening->head), std::move(tensors), *std::move(reservations));
  // Nobody would learn its name.
  if (absl::Status status = call.check(); !status.ok()) return status;
  absl::StatusOr<StoredSession> stored = context_.sessions->Insert(call.principal, std::move(session), *lease);
  if (!stored.ok()) return stored.status();
  return ToProto(*stored);
}

absl::StatusOr<v1::GradientSession> SessionHandler::Get(const CallContext& call,
                                                        const v1::GetSessionRequest& request) const {
  absl::StatusOr<StoredSession> stored = context_.sessions->Stat(call.principal, request.session());
  if (!stored.ok()) return stored.status();
  return ToProto(*stored);
}

absl::StatusOr<v1::ListSessionsResponse> SessionHandler::List(const CallContext& call,
                                                              const v1::ListSessionsRequest& request) const {
  absl::StatusOr<int> page_size = ParsePageSize(request.page_size());
  if (!page_size.ok()) return page_size.status();
  if (!request.page_token().empty() && !SessionStore::IsName(request.page_token())) {
    return BadPageToken(request.page_token());
  }
  std::vector<StoredSession> sessions = context_.sessions->List(call.principal, request.page_token(), *page_size + 1);
  v1::ListSessionsResponse response;
  if (sessions.size() > static_cast<std::size_t>(*page_size)) {
    sessions.pop_back();
    response.set_next_page_token(sessions.back().name);
  }
  for (const StoredSession& session : sessions) *response.add_sessions() = ToProto(session);
  return response;
}

absl::StatusOr<v1::GradientSession> SessionHandler::Touch(const CallContext& call,
                                                          const v1::TouchSessionRequest& request) const {
  absl::StatusOr<absl::Duration> lease = ParseLease(request.lease_ms());
  if (!lease.ok()) return lease.status();
  absl::StatusOr<StoredSession> stored = context_.sessions->Touch(call.principal, request.session(), *lease);
  if (!stored.ok()) return stored.status();
  return ToProto(*stored);
}

absl::StatusOr<v1::DeleteSessionResponse> SessionHandler::Delete(const CallContext& call,
                                                                 const v1::DeleteSessionRequest& request) const {
  if (absl::Status status = context_.sessions->Delete(call.principal, request.session()); !status.ok()) return status;
  return v1::DeleteSessionResponse();
}

absl::StatusOr<v1::GradientSession> SessionHandler::Zero(const CallContext& call,
                                                         const v1::ZeroSessionRequest& request) const {
  if (absl::Status status = CheckSessionId("request_id", request.request_id()); !status.ok()) return status;
  absl::StatusOr<StoredSession> stored =
      context_.sessions->Touch(call.principal, request.session(), absl::ZeroDuration());
  if (!stored.ok()) return stored.status();
  GradientSession& session = *stored->session;
  v1::FetchSessionResponse answer;
  absl::StatusOr<Executor::Timing> done = session.head().device->executor->Run(
      call.check, Executor::Needs::kDevice,
      [&](GradientBackend& backend, const linear_logp::ContinueCheck& check) -> absl::Status {
        if (const auto known = session.AnswerOf(request.request_id()); known.has_value()) {
          answer = *known;
          return absl::OkStatus();
        }
        if (session.ended()) return NoSuchSession(request.session());
        if (absl::Status status = check(); !status.ok()) return status;
        if (absl::Status status = backend.ZeroSession(session.tensors()); !status.ok()) return status;
        *answer.mutable_session() = ToProto(*stored);
        answer.mutable_session()->clear_batches();
        answer.mutable_session()->clear_num_tokens();
        session.RecordReset(request.request_id(), answer);
        return absl::OkStatus();
      });
  if (!done.ok()) return done.status();
  return answer.session();
}

absl::StatusOr<SessionHandler::Sums> SessionHandler::AllocateSums(absl::string_view principal,
                                                                  const GradientSession::Head& head) const {
  Sums sums;
  absl::StatusOr<std::shared_ptr<HostBuffer>> weight =
      context_.tensors->Allocate(principal, BytesOf(head.SumOfWeight()));
  if (!weight.ok()) return weight.status();
  sums.weight = *std::move(weight);
  if (!head.bias.has_value()) return sums;
  absl::StatusOr<std::shared_ptr<HostBuffer>> bias = context_.tensors->Allocate(principal, BytesOf(head.SumOfBias()));
  if (!bias.ok()) return bias.status();
  sums.bias = *std::move(bias);
  return sums;
}

absl::Status SessionHandler::StoreSums(absl::string_view principal, const GradientSession::Head& head, const Sums& sums,
                                       absl::Duration lease, v1::FetchSessionResponse* response) const {
  absl::StatusOr<StoredTensor> weight = context_.tensors->Insert(principal, head.SumOfWeight(), sums.weight, {}, lease);
  if (!weight.ok()) return weight.status();
  *response->mutable_grad_weight() = ToProto(*weight);
  if (sums.bias == nullptr) return absl::OkStatus();
  absl::StatusOr<StoredTensor> bias = context_.tensors->Insert(principal, head.SumOfBias(), sums.bias, {}, lease);
  if (!bias.ok()) {
    static_cast<void>(context_.tensors->Delete(principal, weight->handle));
    return bias.status();
  }
  *response->mutable_grad_bias() = ToProto(*bias);
  return absl::OkStatus();
}

absl::StatusOr<v1::FetchSessionResponse> SessionHandler::Fetch(const CallContext& call,
                                                               const v1::FetchSessionRequest& request) {
  if (request.reset()) {
    if (absl::Status status = CheckSessionId("request_id", request.request_id()); !status.ok()) return status;
  }
  absl::StatusOr<absl::Duration> lease = ParseLease(request.lease_ms());
  if (!lease.ok()) return lease.status();
  absl::StatusOr<StoredSession> stored =
      context_.sessions->Touch(call.principal, request.session(), absl::ZeroDuration());
  if (!stored.ok()) return stored.status();
  GradientSession& session = *stored->session;
  const auto repeated = [&](const v1::FetchSessionResponse& answer) -> absl::StatusOr<v1::FetchSessionResponse> {
    for (const v1::TensorInfo* const info : {&answer.grad_weight(), &answer.grad_bias()}) {
      const bool there = info->handle().empty() || context_.tensors->Find(call.principal, info->handle()).ok();
      // Also where a Zero had this id.
      if (there && answer.has_grad_weight()) continue;
      return WithField(absl::NotFoundError("request_id: the tensors of an earlier call under this id are gone"),
                       {"request_id", "of an earlier call", ""});
    }
    return answer;
  };
  // Before memory is taken: the tensors may be what fills the caller's share.
  if (request.reset()) {
    if (const auto known = session.AnswerOf(request.request_id()); known.has_value()) return repeated(*known);
  }
  absl::StatusOr<Sums> sums = AllocateSums(call.principal, session.head());
  if (!sums.ok()) return sums.status();
  v1::FetchSessionResponse answer;
  bool known_now = false;
  absl::StatusOr<Executor::Timing> done = session.head().device->executor->Run(
      call.check, Executor::Needs::kDevice,
      [&](GradientBackend& backend, const linear_logp::ContinueCheck& check) -> absl::Status {
        if (request.reset()) {
          if (const auto known = session.AnswerOf(request.request_id()); known.has_value()) {
            answer = *known;
            known_now = true;
            return absl::OkStatus();
          }
        }
        if (session.ended()) return NoSuchSession(request.session());
        if (absl::Status status = check(); !status.ok()) return status;
        std::byte* const bias = sums->bias == nullptr ? nullptr : sums->bias->data();
        if (absl::Status status = backend.ReadSession(*session.tensors(), sums->weight->data(), bias); !status.ok()) {
          return status;
        }
        absl::Status status = StoreSums(call.principal, session.head(), *sums, *lease, &answer);
        if (!status.ok()) return status;
        *answer.mutable_session() = ToProto(*stored);
        if (!request.reset()) return absl::OkStatus();
        // Last: until here an error leaves the sums as they were.
        status = backend.ZeroSession(session.tensors());
        if (status.ok()) session.RecordReset(request.request_id(), answer);
        return status;
      });
  if (!done.ok()) return done.status();
  return known_now ? repeated(answer) : absl::StatusOr<v1::FetchSessionResponse>(std::move(answer));
}

}  // namespace keval::server
