// BenchmarkService over BenchmarkHandler.
#ifndef KEVAL_SERVER_GRPC_BENCHMARK_SERVICE_H_
#define KEVAL_SERVER_GRPC_BENCHMARK_SERVICE_H_

#include "keval/v1/benchmark.grpc.pb.h"
#include "server/benchmark_handler.h"
#include "server/grpc/call.h"

namespace keval::server {

// Thread-safe; owns nothing it is given, all of which must outlive it. One instance for each grpc::Server.
class BenchmarkService final : public v1::BenchmarkService::Service {
 public:
  BenchmarkService(const CallRunner* calls, BenchmarkHandler* handler) : calls_(calls), handler_(handler) {}

  grpc::Status Create(grpc::ServerContext* context, const v1::CreateJobRequest* request,
                      v1::BenchmarkJob* response) override;
  grpc::Status Get(grpc::ServerContext* context, const v1::GetJobRequest* request, v1::BenchmarkJob* response) override;
  grpc::Status List(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                    v1::ListJobsResponse* response) override;
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                     grpc::ServerWriter<v1::JobEvent>* writer) override;
  grpc::Status Cancel(grpc::ServerContext* context, const v1::CancelJobRequest* request,
                      v1::BenchmarkJob* response) override;
  grpc::Status GetReport(grpc::ServerContext* context, const v1::GetReportRequest* request,
                         grpc::ServerWriter<v1::GetReportResponse>* writer) override;

 private:
  const CallRunner* const calls_;
  BenchmarkHandler* const handler_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_GRPC_BENCHMARK_SERVICE_H_
