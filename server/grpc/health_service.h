// gRPC's health protocol over ServingState.
#ifndef KEVAL_SERVER_GRPC_HEALTH_SERVICE_H_
#define KEVAL_SERVER_GRPC_HEALTH_SERVICE_H_

#include "base/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/serving_state.h"

namespace keval::server {

// Takes calls while the server drains, from anyone. A Watch holds a thread, so there are at most kMaxWatches of them.
// Thread-safe; does not own `state`. One instance for each grpc::Server.
class HealthService final : public grpc::health::v1::Health::Service {
 public:
  static constexpr int kMaxWatches = 64;

  explicit HealthService(ServingState* state) : state_(state) {}

  // NOT_FOUND for an unknown service.
  grpc::Status Check(grpc::ServerContext* context, const grpc::health::v1::HealthCheckRequest* request,
                     grpc::health::v1::HealthCheckResponse* response) override;
  // Ends with UNAVAILABLE when the server drains, after the change was sent. RESOURCE_EXHAUSTED: too many watches.
  grpc::Status Watch(grpc::ServerContext* context, const grpc::health::v1::HealthCheckRequest* request,
                     grpc::ServerWriter<grpc::health::v1::HealthCheckResponse>* writer) override;

 private:
  ServingState* const state_;
  Mutex mutex_;
  int watches_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_GRPC_HEALTH_SERVICE_H_
