// LinearLogpService without its transport: Plan, Forward, Gradient, and the parts of StreamGradient.
#ifndef KEVAL_SERVER_LINEAR_LOGP_HANDLER_H_
#define KEVAL_SERVER_LINEAR_LOGP_HANDLER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/linear_logp/chunk_plan.h"
#include "core/linear_logp/engine.h"
#include "keval/v1/linear_logp.pb.h"
#include "server/byte_budget.h"
#include "server/call_context.h"
#include "server/gradient_pipeline.h"
#include "server/gradient_request.h"
#include "server/gradient_sender.h"
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
  // Waits while hidden comes faster than it is computed on and its gradient read; errors of the computing.
  absl::Status Take(const v1::StreamGradientRequest& message, const wire::FrameData& data) {
    return receiver_->Take(message, data);
  }

 private:
  friend class LinearLogpHandler;
  GradientStream() = default;

  std::shared_ptr<ByteBudget::Reservation> reservation_;  // Shared by what is still being sent.
  v1::GradientRequest header_;
  GradientCall call_;
  std::unique_ptr<GradientSender> sender_;
  std::unique_ptr<PayloadReceiver> receiver_;
  // Null where the variant needs all tokens at once, or hidden is here already. Last: its threads use all of the above.
  std::unique_ptr<GradientPipeline> pipeline_;
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

  // `first` must hold the header; what came with it goes to Take. Everything that a header can be refused for is. Where
  // tokens can come a chunk at a time they are computed on as they come, and sent meanwhile where the header allows it,
  // from another thread. `send` returns false when the stream has broken. `call` must outlive the stream.
  absl::StatusOr<std::unique_ptr<GradientStream>> StartStream(const CallContext& call,
                                                              const v1::StreamGradientRequest& first,
                                                              const wire::FrameData& data, GradientSender::Send send);
  // After the peer's last message: computes what is left to compute, then sends header, frames of 1 MiB and `done`, or
  // what is left of them. CANCELLED when the stream has broken.
  absl::Status FinishStream(const CallContext& call, GradientStream* stream);

 private:
  struct Computed {
    linear_logp::Outputs outputs;
    Executor::Timing timing;
    v1::SessionBatchResult batch;         // Of a micro-batch.
    ByteBudget::Reservation reservation;  // Of a unary call, until its answer is made.
  };
  absl::StatusOr<Computed> Compute(const CallContext& call, const GradientCall& request);
  // After a micro-batch was added.
  void RenewSession(const GradientCall& request) const;
  // Parses the request, reserves memory for it, computes.
  absl::StatusOr<Computed> ComputeUnary(const CallContext& call, const v1::LinearLogpOptions& options,
                                        const v1::LinearLogpInputs& inputs,
                                        const google::protobuf::RepeatedField<int>& want,
                                        const v1::SessionBatch* batch);
  // The plan of a request whose hidden comes in the stream to a variant that takes it in chunks.
  std::optional<linear_logp::ChunkPlan> PlanChunks(const GradientCall& request) const;
  // Memory for what is awaited, and where its bytes go.
  absl::StatusOr<std::vector<PayloadSegment>> MakeSegments(GradientStream* stream) const;

  const RequestContext context_;
  ByteBudget* const request_bytes_;
  const std::shared_ptr<HostMemoryPool> memory_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_LINEAR_LOGP_HANDLER_H_
