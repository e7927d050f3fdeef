#include "server/grpc/benchmark_service.h"

namespace keval::server {

grpc::Status BenchmarkService::Create(grpc::ServerContext* context, const v1::CreateJobRequest* request,
                                      v1::BenchmarkJob* response) {
  return calls_->Run(context, "Create", [&](const CallContext& call) {
    return Answer(handler_->Create(call.principal, *request), response);
  });
}

grpc::Status BenchmarkService::Get(grpc::ServerContext* context, const v1::GetJobRequest* request,
                                   v1::BenchmarkJob* response) {
  return calls_->Run(context, "Get", [&](const CallContext& call) {
    return Answer(handler_->Get(call.principal, *request), response);
  });
}

grpc::Status BenchmarkService::List(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                                    v1::ListJobsResponse* response) {
  return calls_->Run(context, "List", [&](const CallContext& call) {
    return Answer(handler_->List(call.principal, *request), response);
  });
}

grpc::Status BenchmarkService::Watch(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                                     grpc::ServerWriter<v1::JobEvent>* writer) {
  return calls_->RunStream(context, "Watch", [&](const CallContext& call) {
    return handler_->Watch(
        call.principal, *request, [&](const v1::JobEvent& event) { return calls_->Write(context, writer, event); },
        call.check);
  });
}

grpc::Status BenchmarkService::Cancel(grpc::ServerContext* context, const v1::CancelJobRequest* request,
                                      v1::BenchmarkJob* response) {
  return calls_->Run(context, "Cancel", [&](const CallContext& call) {
    return Answer(handler_->Cancel(call.principal, *request), response);
  });
}

grpc::Status BenchmarkService::GetReport(grpc::ServerContext* context, const v1::GetReportRequest* request,
                                         grpc::ServerWriter<v1::GetReportResponse>* writer) {
  return calls_->Run(context, "GetReport", [&](const CallContext& call) {
    return handler_->GetReport(call.principal, *request, [&](const v1::GetReportResponse& response) {
      return calls_->Write(context, writer, response);
    });
  });
}

}  // namespace keval::server
