// A linear_logp request on its way in: everything that can be refused is refused here, before anything is allocated.
#ifndef KEVAL_SERVER_GRADIENT_REQUEST_H_
#define KEVAL_SERVER_GRADIENT_REQUEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/linear_logp/engine.h"
#include "core/linear_logp/problem.h"
#include "keval/v1/linear_logp.pb.h"
#include "server/device_table.h"
#include "server/gradient_session.h"
#include "server/operand.h"
#include "server/session_store.h"
#include "server/tensor_store.h"

namespace keval::server {

// An operand whose bytes are still to come in the stream.
struct AwaitedOperand {
  std::string field;
  std::int64_t bytes = 0;
  linear_logp::HostTensor* tensor = nullptr;  // In GradientCall::inputs: its `data` is to be set.
};

// One validated request. Inline bytes are read where they lie, so the message must outlive it; stored tensors are held.
struct GradientCall {
  const ServedDevice* device = nullptr;
  linear_logp::Options options;
  linear_logp::Problem problem;
  // As what applies: no bias, no gradient of it; no grad_logp, no gradient at all. A session's micro-batch has both
  // weight and bias, for the sums.
  linear_logp::Want want;
  linear_logp::Inputs inputs;
  std::vector<AwaitedOperand> awaited;  // In the order of the stream: targets, grad_logp, bias, weight, hidden.
  std::int64_t operand_bytes =
      0;  // Inline, awaited and stored ones. These sums stop at INT64_MAX: more than any limit.
  // A micro-batch of it, under this id; weight and bias are not in `inputs` then.
  std::shared_ptr<GradientSession> session;
  std::string batch_id;
  std::int64_t inline_bytes = 0;
  std::int64_t awaited_bytes = 0;
  std::int64_t result_bytes = 0;        // logp and the gradients that are returned.
  std::int64_t table_bytes = 0;         // Of a micro-batch, what is kept apart until it is added to the session's sums.
  std::int64_t token_result_bytes = 0;  // Of them, what each token has: logp and grad_hidden.

  // The gradients of the answer.
  linear_logp::Want Returned() const {
    return session == nullptr ? want : linear_logp::Want{want.hidden, false, false};
  }

  GradientCall() = default;
  GradientCall(const GradientCall&) = delete;  // `awaited` points into `inputs`.
  GradientCall& operator=(const GradientCall&) = delete;
};

struct RequestLimits {
  std::int64_t max_unary_bytes = std::int64_t{2} << 20;
  // Results of a unary call: below the 4 MiB that gRPC clients accept in one message unless told otherwise.
  std::int64_t max_unary_result_bytes = (std::int64_t{4} << 20) - (std::int64_t{64} << 10);
};

struct RequestContext {
  const DeviceTable* devices = nullptr;
  TensorStore* tensors = nullptr;
  SessionStore* sessions = nullptr;
  const std::vector<linear_logp::VariantDescription>* variants = nullptr;
  RequestLimits limits;
};

// Fills `call`; `batch` is null where it is no micro-batch of a session. INVALID_ARGUMENT naming field, value and limit
// for every refusal of the contract; NOT_FOUND for a handle or the session; FAILED_PRECONDITION for the device;
// RESOURCE_EXHAUSTED where operands and results alone exceed the device's memory. Targets whose bytes are here are
// checked; awaited ones are CheckTargets' business.
absl::Status ParseGradientCall(const RequestContext& context, absl::string_view principal, Entrance entrance,
                               const v1::LinearLogpOptions& options, const v1::LinearLogpInputs& inputs,
                               const google::protobuf::RepeatedField<int>& want, const v1::SessionBatch* batch,
                               GradientCall* call);

// REQUIRES that the targets' bytes are in. INVALID_ARGUMENT (field "targets").
absl::Status CheckTargets(const GradientCall& call);

// INVALID_ARGUMENT (field "variant") for a name that isn't in `variants`.
absl::Status CheckVariant(absl::string_view name, const std::vector<linear_logp::VariantDescription>& variants);

}  // namespace keval::server

#endif  // KEVAL_SERVER_GRADIENT_REQUEST_H_
