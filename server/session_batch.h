// A micro-batch's way into its session's sums, each once. Everything here runs on the executor's thread of the
// session's device, where one piece of work ends before the next begins: an id that was new when a piece asked is new
// until it has added. REQUIRES call.session.
#ifndef KEVAL_SERVER_SESSION_BATCH_H_
#define KEVAL_SERVER_SESSION_BATCH_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/linear_logp/engine.h"
#include "keval/v1/linear_logp.pb.h"
#include "server/gradient_backend.h"
#include "server/gradient_request.h"

namespace keval::server {

// All of it at once: results without weight and bias, whose gradients are added where the id is new. Any error,
// NOT_FOUND for a session that has ended among them, leaves the sums as they were.
absl::StatusOr<linear_logp::Outputs> AddBatch(GradientBackend& backend, const GradientCall& call,
                                              const linear_logp::ContinueCheck& check, v1::SessionBatchResult* result);

// The same in pieces, with GradientBackend::AddChunk between the two, and one `result` for both: an id that Begin knew
// stays known to Finish, though the session may have forgotten it meanwhile.
absl::StatusOr<std::unique_ptr<linear_logp::ChunkedGradient>> BeginBatch(GradientBackend& backend,
                                                                         const GradientCall& call,
                                                                         v1::SessionBatchResult* result);
absl::StatusOr<linear_logp::Outputs> FinishBatch(GradientBackend& backend, const GradientCall& call,
                                                 linear_logp::ChunkedGradient* gradient,
                                                 const linear_logp::ContinueCheck& check,
                                                 v1::SessionBatchResult* result);

}  // namespace keval::server

#endif  // KEVAL_SERVER_SESSION_BATCH_H_
