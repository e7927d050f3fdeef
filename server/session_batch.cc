#include "server/session_batch.h"

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace keval::server {
namespace {

// What is still wanted of a micro-batch that is known, or would be new.
linear_logp::Want WantOf(const GradientCall& call, const v1::SessionBatchResult& result) {
  return result.repeated() ? linear_logp::Want{call.want.hidden, false, false} : call.want;
}

absl::Status CheckOpen(const GradientCall& call) {
  return call.session->ended() ? NoSuchSession("") : absl::OkStatus();
}

// Answers `result` where the id is known.
void AnswerKnown(const GradientCall& call, v1::SessionBatchResult* result) {
  const std::optional<std::int64_t> known = call.session->SequenceOf(call.batch_id);
  if (!known.has_value()) return;
  result->set_repeated(true);
  result->set_sequence(*known);
}

void RecordNew(const GradientCall& call, v1::SessionBatchResult* result) {
  if (result->repeated()) return;
  result->set_sequence(call.session->RecordBatch(call.batch_id, call.problem.num_tokens));
}

}  // namespace

absl::StatusOr<linear_logp::Outputs> AddBatch(GradientBackend& backend, const GradientCall& call,
                                              const linear_logp::ContinueCheck& check, v1::SessionBatchResult* result) {
  // Also asked as the last thing before the addition.
  const linear_logp::ContinueCheck check_both = [&]() -> absl::Status {
    if (absl::Status status = CheckOpen(call); !status.ok()) return status;
    return check();
  };
  if (absl::Status status = CheckOpen(call); !status.ok()) return status;
  AnswerKnown(call, result);
  absl::StatusOr<linear_logp::Outputs> outputs = backend.AddToSession(
      call.session->tensors(), call.problem, call.options, WantOf(call, *result), call.inputs, check_both);
  if (outputs.ok()) RecordNew(call, result);
  return outputs;
}

absl::StatusOr<std::unique_ptr<linear_logp::ChunkedGradient>> BeginBatch(GradientBackend& backend,
                                                                         const GradientCall& call,
                                                                         v1::SessionBatchResult* result) {
  if (absl::Status status = CheckOpen(call); !status.ok()) return status;
  AnswerKnown(call, result);
  return backend.BeginInSession(*call.session->tensors(), call.problem, call.options, WantOf(call, *result),
                                call.inputs);
}

absl::StatusOr<linear_logp::Outputs> FinishBatch(GradientBackend& backend, const GradientCall& call,
                                                 linear_logp::ChunkedGradient* gradient,
                                                 const linear_logp::ContinueCheck& check,
                                                 v1::SessionBatchResult* result) {
  if (absl::Status status = CheckOpen(call); !status.ok()) return status;
  if (absl::Status status = check(); !status.ok()) return status;
  // Another call may have added it since Begin: then what this one has summed up is dropped.
  AnswerKnown(call, result);
  absl::StatusOr<linear_logp::Outputs> outputs =
      result->repeated() ? backend.Finish(gradient) : backend.FinishInSession(gradient, call.session->tensors());
  if (!outputs.ok()) return outputs;
  outputs->grad_weight.reset();
  outputs->grad_bias.reset();
  RecordNew(call, result);
  return outputs;
}

}  // namespace keval::server
