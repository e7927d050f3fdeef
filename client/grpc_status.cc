#include "client/grpc_status.h"

#include <string>

#include "base/field_error.h"
#include "base/text.h"
#include "keval/v1/error.pb.h"

namespace keval {

absl::Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context) {
  if (status.ok()) return absl::OkStatus();
  // absl's and gRPC's codes are the same numbers; both come from google.rpc.Code.
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), PrintableText(status.error_message()));
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find("keval-error-bin");
  if (found == metadata.end()) return result;
  v1::ErrorDetail detail;
  // A detail that can't be read takes nothing from code and message.
  if (!detail.ParseFromArray(found->second.data(), static_cast<int>(found->second.size()))) return result;
  if (!detail.field().empty()) result = WithField(result, {detail.field(), detail.value(), detail.limit()});
  if (detail.retry_delay_ms() > 0) result = WithRetryDelayMs(result, detail.retry_delay_ms());
  return result;
}

}  // namespace keval
