// gRPC's statuses as absl's, with what the server said about field and retry delay.
#ifndef KEVAL_CLIENT_GRPC_STATUS_H_
#define KEVAL_CLIENT_GRPC_STATUS_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace keval {

// `context` of the call that ended with `status`; its trailing metadata is read.
absl::Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context);

}  // namespace keval

#endif  // KEVAL_CLIENT_GRPC_STATUS_H_
