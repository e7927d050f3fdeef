// absl::Status to gRPC: the one place where a refusal gets its wire form.
#ifndef KEVAL_SERVER_GRPC_STATUS_CONVERSION_H_
#define KEVAL_SERVER_GRPC_STATUS_CONVERSION_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace keval::server {

inline constexpr char kErrorDetailKey[] = "keval-error-bin";
inline constexpr char kRetryDelayKey[] = "keval-retry-delay-ms";

// The wire form of a status: code and message, what there is to say of field and retry delay in ErrorDetail, and the
// same as google.rpc.Status (status_details.proto) in the status's error_details. The message is printable and at most
// 1 KiB, so that status and metadata stay below the 8 KiB that peers accept. Codes that no RPC documents (UNKNOWN,
// INTERNAL, DATA_LOSS, ABORTED, ...) keep their number, but their message, which may name internals, becomes a general
// one.
struct WireStatus {
  grpc::Status status;
  std::vector<std::pair<std::string, std::string>> trailing_metadata;
};
WireStatus ToWire(const absl::Status& status);

// ToWire with the metadata put into `context`, which may be a sync or a callback context.
grpc::Status ToGrpc(const absl::Status& status, grpc::ServerContextBase* context);

}  // namespace keval::server

#endif  // KEVAL_SERVER_GRPC_STATUS_CONVERSION_H_
