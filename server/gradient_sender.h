// The answer of a StreamGradient: its header, its frames, its end.
#ifndef KEVAL_SERVER_GRADIENT_SENDER_H_
#define KEVAL_SERVER_GRADIENT_SENDER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "core/linear_logp/engine.h"
#include "keval/v1/linear_logp.pb.h"
#include "server/call_context.h"
#include "server/executor.h"
#include "server/gradient_request.h"
#include "wire/frame.h"
#include "wire/payload_digest.h"

namespace keval::server {

// Tensors in the order of the answer's payload.
enum class ResultTensor : std::uint8_t { kLogp, kGradHidden, kGradWeight, kGradBias };

// Not thread-safe; `call` and `request` must outlive it. Every error is the call's: CANCELLED where the stream broke.
class GradientSender {
 public:
  // False where the stream has broken.
  using Send = std::function<bool(const v1::StreamGradientResponse& message, const wire::Payload& payload)>;
  // `held` is kept by everything that gRPC still reads, also beyond the call.
  GradientSender(const CallContext& call, const GradientCall& request, v1::PayloadDigest digest,
                 std::shared_ptr<const void> held, Send send);

  // The header, with the specs of what was wanted.
  absl::Status Start();
  // The next bytes of that tensor, in frames.
  absl::Status Tensor(ResultTensor which, const linear_logp::HostTensor& piece);
  // The end. `batch`: what became of a micro-batch; null where it is none.
  absl::Status Done(const linear_logp::Dispatch& dispatch, const Executor::Timing& timing,
                    const v1::SessionBatchResult* batch);

 private:
  struct Place {
    TensorSpec spec;
    bool wanted = false;
    std::uint64_t next = 0;  // Offset of its next byte in the payload.
  };
  Place& PlaceOf(ResultTensor which) { return places_[static_cast<std::size_t>(which)]; }
  absl::Status SendMessage(const v1::StreamGradientResponse& message, const wire::Payload& payload);

  const CallContext& call_;
  const std::shared_ptr<const void> held_;
  const Send send_;
  wire::PayloadDigest digest_;
  std::array<Place, 4> places_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_GRADIENT_SENDER_H_
