// Between a gradient call's values and its messages.
#ifndef KEVAL_CLIENT_GRADIENT_REQUEST_H_
#define KEVAL_CLIENT_GRADIENT_REQUEST_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/stub.h"
#include "keval/connection.h"
#include "keval/v1/linear_logp.pb.h"

namespace keval {

// A request without bytes, and the bytes beside it: one contiguous span for each operand that has no handle, in the
// order in which a stream carries them (targets, grad_logp, bias, weight, hidden). Strided views have been copied;
// contiguous ones are used where they lie.
struct PreparedGradient {
  v1::GradientRequest header;
  std::vector<ConstBytes> payload;
  std::int64_t payload_bytes = 0;
  // An upper bound of the answer's bytes: 16-bit operands may ask for gradients of twice their size. Without meaning
  // where there are handles.
  std::int64_t answer_bytes = 0;
  bool has_handles = false;
  std::deque<Tensor> copies;  // What spans of `payload` may point into.
};

// INVALID_ARGUMENT naming the operand: an impossible shape, strides of another rank, no memory behind a view.
absl::StatusOr<PreparedGradient> PrepareGradient(const GradientParams& params);

// The request with its bytes inside, for the unary call.
v1::GradientRequest WithBytes(const PreparedGradient& prepared);

// Result of a unary answer; DATA_LOSS where its bytes aren't those of its specs.
absl::StatusOr<GradientResult> FromResponse(const v1::GradientResponse& response);

// For a stream: allocates `result`'s tensors by `header` and returns their memory in the order of the answer's payload.
absl::StatusOr<std::vector<MutableBytes>> AllocateResult(const v1::GradientResponse& header, GradientResult* result);

// DATA_LOSS for a type that this client doesn't know.
absl::StatusOr<Tensor> AllocateTensor(absl::string_view name, const v1::TensorSpec& spec);
v1::TensorSpec ToProto(const TensorView& view);
// `view` itself where it is contiguous, else a copy that is kept in `copies`.
absl::StatusOr<ConstBytes> Contiguous(absl::string_view name, const TensorView& view, std::deque<Tensor>* copies);

}  // namespace keval

#endif  // KEVAL_CLIENT_GRADIENT_REQUEST_H_
