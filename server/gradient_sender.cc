#include "server/gradient_sender.h"

#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/shape.h"
#include "server/proto_convert.h"

namespace keval::server {

GradientSender::GradientSender(const CallContext& call, const GradientCall& request, v1::PayloadDigest digest,
                               std::shared_ptr<const void> held, Send send)
    : call_(call), held_(std::move(held)), send_(std::move(send)), digest_(digest) {
  const linear_logp::Problem& problem = request.problem;
  const DType gradient =
      request.options.grad_dtype == linear_logp::GradDtype::kFloat32 ? problem.LogpDtype() : problem.dtype;
  const linear_logp::Want returned = request.Returned();
  std::vector<std::int64_t> hidden_shape = problem.leading_shape;
  hidden_shape.push_back(problem.hidden_size);
  PlaceOf(ResultTensor::kLogp) = {{problem.LogpDtype(), problem.leading_shape}, true};
  PlaceOf(ResultTensor::kGradHidden) = {{gradient, hidden_shape}, returned.hidden};
  PlaceOf(ResultTensor::kGradWeight) = {{gradient, {problem.vocab_size, problem.hidden_size}}, returned.weight};
  PlaceOf(ResultTensor::kGradBias) = {{gradient, {problem.vocab_size}}, returned.bias};
  std::uint64_t begin = 0;
  for (Place& place : places_) {
    place.next = begin;
    // The request was validated: its results' bytes fit.
    if (place.wanted) begin += static_cast<std::uint64_t>(NumBytes("result", place.spec).value());
  }
}

absl::Status GradientSender::SendMessage(const v1::StreamGradientResponse& message, const wire::Payload& payload) {
  if (absl::Status status = call_.check(); !status.ok()) return status;
  return send_(message, payload) ? absl::OkStatus() : absl::CancelledError("the caller has gone");
}

absl::Status GradientSender::Start() {
  v1::StreamGradientResponse message;
  v1::GradientResponse* const header = message.mutable_header();
  const auto announce = [this](ResultTensor which, v1::Operand* (v1::GradientResponse::*field)(),
                               v1::GradientResponse* to) {
    if (PlaceOf(which).wanted) *(to->*field)()->mutable_spec() = ToProto(PlaceOf(which).spec);
  };
  announce(ResultTensor::kLogp, &v1::GradientResponse::mutable_logp, header);
  announce(ResultTensor::kGradHidden, &v1::GradientResponse::mutable_grad_hidden, header);
  announce(ResultTensor::kGradWeight, &v1::GradientResponse::mutable_grad_weight, header);
  announce(ResultTensor::kGradBias, &v1::GradientResponse::mutable_grad_bias, header);
  return SendMessage(message, {});
}

absl::Status GradientSender::Tensor(ResultTensor which, const linear_logp::HostTensor& piece) {
  const absl::StatusOr<std::int64_t> size = NumBytes("result", piece.spec);
  if (!size.ok()) return size.status();
  // Memory goes before what it is counted by.
  using Held = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
  const auto owner = std::make_shared<const Held>(held_, piece.owner);
  const absl::Span<const std::byte> bytes(piece.data, static_cast<std::size_t>(*size));
  Place& place = PlaceOf(which);
  for (std::size_t at = 0; at < bytes.size(); at += wire::kSentFrameBytes) {
    const absl::Span<const std::byte> frame = bytes.subspan(at, wire::kSentFrameBytes);
    digest_.Update(frame.data(), frame.size());
    if (absl::Status status = SendMessage({}, {place.next, frame, owner}); !status.ok()) return status;
    place.next += frame.size();
  }
  return absl::OkStatus();
}

absl::Status GradientSender::Done(const linear_logp::Dispatch& dispatch, const Executor::Timing& timing,
                                  const v1::SessionBatchResult* batch) {
  v1::StreamGradientResponse message;
  const v1::PayloadTrailer trailer = digest_.Finish();
  message.mutable_done()->set_sha256(trailer.sha256());
  message.mutable_done()->set_xxh3(trailer.xxh3());
  *message.mutable_done()->mutable_dispatch() = ToProto(dispatch);
  *message.mutable_done()->mutable_timing() = ToProto(timing);
  if (batch != nullptr) *message.mutable_done()->mutable_session_batch() = *batch;
  return SendMessage(message, {});
}

}  // namespace keval::server
