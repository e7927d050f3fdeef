// LinearLogpService without its transport: Plan, Forward, Gradient, and the parts of StreamGradient.
#ifndef KEVAL_SERVER_LINEAR_LOGP_HANDLER_H_
#define KEVAL_SERVER_LINEAR_LOGP_HANDLER_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/linear_logp/engine.h"
#include "keval/v1/linear_logp.pb.h"
#include "server/byte_budget.h"
#include "server/call_context.h"
#include "server/gradient_request.h"
#include "server/host_memory_pool.h"
#include "server/tensor_frames.h"
#include "wire/frame.h"

namespace keval::server {

// A streamed request between its header and its results. Owner: one call, which makes every call to it from one thread
// at a time. Memory for what is awaited is reserved and allocated by LinearLogpHandler::StartStream.
class GradientStream {
 public:
  // The next message after the header, or what the header's own message carries beside it. INVALID_ARGUMENT: a second
  // header; anything after the trailer; frames as FrameAssembler::Add; targets out of range, as soon as they are in.
  absl::Status Take(const v1::StreamGradientRequest& message, const wire::FrameData& data) {
    return receiver_->Take(message, data);
  }

 private:
  friend class LinearLogpHandler;
  GradientStream() = default;

  std::shared_ptr<ByteBudget::Reservation> reservation_;  // Shared by what is still being sent.
  v1::GradientRequest header_;
  GradientCall call_;
  std::unique_ptr<PayloadReceiver> receiver_;
};

// Error codes are those of linear_logp.proto. Thread-safe; owns nothing it is given, all of which must outlive it.
class LinearLogpHandler {
 public:
  // `request_bytes`: memory for operands and results of requests that wait or run.
  LinearLogpHandler(RequestContext context, ByteBudget* request_bytes, std::shared_ptr<HostMemoryPool> memory)
      : context_(context), request_bytes_(request_bytes), memory_(std::move(memory)) {}

  absl::StatusOr<v1::PlanResponse> Plan(const CallContext& call, const v1::PlanRequest& request) const;
  absl::StatusOr<v1::ForwardResponse> Forward(const CallContext& call, const v1::ForwardRequest& request);
  absl::StatusOr<v1::GradientResponse> Gradient(const CallContext& call, const v1::GradientRequest& request);

  // `first` must hold the header; what came with it goes to Take. Everything that a header can be refused for is.
  absl::StatusOr<std::unique_ptr<GradientStream>> StartStream(const CallContext& call,
                                                              const v1::StreamGradientRequest& first,
                                                              const wire::FrameData& data);
  // After the peer's last message: computes, then sends header, frames of 1 MiB and `done`. `send` returns false when
  // the stream has broken: CANCELLED.
  absl::Status FinishStream(const CallContext& call, GradientStream* stream,
                            absl::FunctionRef<bool(const v1::StreamGradientResponse&, const wire::Payload&)> send);

 private:
  struct Computed {
    linear_logp::Outputs outputs;
    Executor::Timing timing;
  };
  absl::StatusOr<Computed> Compute(const CallContext& call, const GradientCall& request);

  const RequestContext context_;
  ByteBudget* const request_bytes_;
  const std::shared_ptr<HostMemoryPool> memory_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_LINEAR_LOGP_HANDLER_H_
