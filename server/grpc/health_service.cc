#include "server/grpc/health_service.h"

#include <chrono>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/grpc/status_conversion.h"

namespace keval::server {
namespace {

using grpc::health::v1::HealthCheckResponse;

// How soon a Watch notices that its peer has gone.
constexpr std::chrono::milliseconds kPeerCheckInterval{200};

HealthCheckResponse ToProto(std::optional<bool> serves) {
  HealthCheckResponse response;
  if (!serves.has_value()) {
    response.set_status(HealthCheckResponse::SERVICE_UNKNOWN);
  } else {
    response.set_status(*serves ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
  }
  return response;
}

}  // namespace

grpc::Status HealthService::Check(grpc::ServerContext* context, const grpc::health::v1::HealthCheckRequest* request,
                                  HealthCheckResponse* response) {
  const std::optional<bool> serves = state_->Health(request->service());
  if (!serves.has_value()) {
    return ToGrpc(absl::NotFoundError(absl::StrCat("service: no health is known of ", request->service())), context);
  }
  *response = ToProto(serves);
  return grpc::Status::OK;
}

grpc::Status HealthService::Watch(grpc::ServerContext* context, const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::ServerWriter<HealthCheckResponse>* writer) {
  {
    MutexLock lock(&mutex_);
    if (watches_ >= kMaxWatches) {
      return ToGrpc(absl::ResourceExhaustedError(absl::StrCat("watches: ", kMaxWatches, " are open, the most at once")),
                    context);
    }
    ++watches_;
  }
  const absl::Cleanup done = [this] {
    MutexLock lock(&mutex_);
    --watches_;
  };
  std::optional<std::optional<bool>> sent;
  while (true) {
    // In this order: a change by draining is seen below whenever `draining` is.
    const bool draining = state_->draining();
    const std::optional<bool> serves = state_->Health(request->service());
    if (!sent.has_value() || *sent != serves) {
      if (!writer->Write(ToProto(serves))) return grpc::Status::CANCELLED;
      sent = serves;
    }
    if (draining) return ToGrpc(absl::UnavailableError("the server is draining"), context);
    if (context->IsCancelled()) return grpc::Status::CANCELLED;
    state_->WaitForHealthChange(request->service(), serves, std::chrono::steady_clock::now() + kPeerCheckInterval);
  }
}

}  // namespace keval::server
