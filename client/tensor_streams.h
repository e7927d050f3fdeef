// The streams that carry tensor bytes, each from its first message to its status.
#ifndef KEVAL_CLIENT_TENSOR_STREAMS_H_
#define KEVAL_CLIENT_TENSOR_STREAMS_H_

#include <grpcpp/channel.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/attempt_context.h"
#include "client/stub.h"
#include "keval/v1/linear_logp.pb.h"
#include "keval/v1/tensor.pb.h"

namespace keval {

// Contracts: Stub's functions of these names. Payload bytes are sent from where they lie, as `lent` is the owner of:
// gRPC may read them until that has no reference left (wire/memory_loan.h). Errors of the client's own: DATA_LOSS where
// the server's answer breaks the protocol (frames out of order, more or fewer bytes than declared, a digest that
// differs). The digest is the one that `header` or `request` names.
absl::StatusOr<v1::StreamGradientDone> RunStreamGradient(grpc::Channel* channel, AttemptContext& context,
                                                         const v1::GradientRequest& header,
                                                         const std::vector<ConstBytes>& payload,
                                                         const std::shared_ptr<const void>& lent,
                                                         const Stub::Allocate& allocate);
absl::StatusOr<v1::TensorInfo> RunPut(grpc::Channel* channel, AttemptContext& context, const v1::PutHeader& header,
                                      ConstBytes payload, const std::shared_ptr<const void>& lent);
absl::Status RunGet(grpc::Channel* channel, AttemptContext& context, const v1::GetTensorRequest& request,
                    const Stub::AllocateTensor& allocate);

}  // namespace keval

#endif  // KEVAL_CLIENT_TENSOR_STREAMS_H_
