// The streams that carry tensor bytes, each from its first message to its status.
#ifndef KEVAL_CLIENT_TENSOR_STREAMS_H_
#define KEVAL_CLIENT_TENSOR_STREAMS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/attempt_context.h"
#include "client/stub.h"
#include "keval/v1/linear_logp.grpc.pb.h"
#include "keval/v1/tensor.grpc.pb.h"

namespace keval {

// Contracts: Stub's functions of these names. Errors of the client's own: DATA_LOSS where the server's answer breaks
// the protocol (frames out of order, more or fewer bytes than declared, a digest that differs).
absl::StatusOr<v1::StreamGradientDone> RunStreamGradient(v1::LinearLogpService::Stub& service, AttemptContext& context,
                                                         const v1::GradientRequest& header,
                                                         const std::vector<ConstBytes>& payload,
                                                         const Stub::Allocate& allocate);
absl::StatusOr<v1::TensorInfo> RunPut(v1::TensorService::Stub& service, AttemptContext& context,
                                      const v1::PutHeader& header, ConstBytes payload);
absl::Status RunGet(v1::TensorService::Stub& service, AttemptContext& context, const v1::GetTensorRequest& request,
                    const Stub::AllocateTensor& allocate);

}  // namespace keval

#endif  // KEVAL_CLIENT_TENSOR_STREAMS_H_
