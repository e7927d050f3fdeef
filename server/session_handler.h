// The life of gradient sessions, without its transport; their micro-batches are LinearLogpHandler's.
#ifndef KEVAL_SERVER_SESSION_HANDLER_H_
#define KEVAL_SERVER_SESSION_HANDLER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/linear_logp/engine.h"
#include "core/linear_logp/problem.h"
#include "keval/v1/linear_logp.pb.h"
#include "server/call_context.h"
#include "server/gradient_request.h"
#include "server/gradient_session.h"
#include "server/host_buffer.h"
#include "server/host_memory_pool.h"
#include "server/operand.h"

namespace keval::server {

// Error codes are those of linear_logp.proto. Thread-safe; owns nothing it is given, all of which must outlive it.
class SessionHandler {
 public:
  SessionHandler(RequestContext context, std::shared_ptr<HostMemoryPool> memory)
      : context_(context), memory_(std::move(memory)) {}

  absl::StatusOr<v1::GradientSession> Create(const CallContext& call, const v1::CreateSessionRequest& request);
  absl::StatusOr<v1::GradientSession> Get(const CallContext& call, const v1::GetSessionRequest& request) const;
  absl::StatusOr<v1::ListSessionsResponse> List(const CallContext& call, const v1::ListSessionsRequest& request) const;
  absl::StatusOr<v1::GradientSession> Touch(const CallContext& call, const v1::TouchSessionRequest& request) const;
  absl::StatusOr<v1::DeleteSessionResponse> Delete(const CallContext& call,
                                                   const v1::DeleteSessionRequest& request) const;
  absl::StatusOr<v1::GradientSession> Zero(const CallContext& call, const v1::ZeroSessionRequest& request) const;
  absl::StatusOr<v1::FetchSessionResponse> Fetch(const CallContext& call, const v1::FetchSessionRequest& request);

 private:
  // What a session is opened from.
  struct Opening {
    GradientSession::Head head;
    linear_logp::Problem problem;
    ParsedOperand weight;
    ParsedOperand bias;      // Of no bytes where there is none.
    std::int64_t bytes = 0;  // What it will count for.
  };
  // Where the sums are copied to.
  struct Sums {
    std::shared_ptr<HostBuffer> weight;
    std::shared_ptr<HostBuffer> bias;  // Null where there is none.
  };

  absl::StatusOr<Opening> ParseOpening(const CallContext& call, const v1::CreateSessionRequest& request) const;
  // `operand` as a tensor that outlives the message: a copy where its bytes are inline.
  absl::Status Keep(const ParsedOperand& operand, linear_logp::HostTensor* tensor) const;
  absl::StatusOr<Sums> AllocateSums(absl::string_view principal, const GradientSession::Head& head) const;
  // Puts the sums into the store. Nothing stays of it where it fails.
  absl::Status StoreSums(absl::string_view principal, const GradientSession::Head& head, const Sums& sums,
                         absl::Duration lease, v1::FetchSessionResponse* response) const;

  const RequestContext context_;
  const std::shared_ptr<HostMemoryPool> memory_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_SESSION_HANDLER_H_
