#include "client/grpc_stub.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/text.h"
#include "client/attempt_context.h"
#include "client/grpc_status.h"
#include "client/tensor_streams.h"

namespace keval {

GrpcStub::GrpcStub(Address address, absl::Duration bulk_probe_timeout, std::function<void(const std::string&)> notice)
    : address_(std::move(address)),
      proxy_variable_(ProxyVariable(address_)),
      bulk_probe_timeout_(bulk_probe_timeout),
      notice_(std::move(notice)),
      control_(MakeChannel(address_, Traffic::kControl)),
      server_info_(v1::ServerInfoService::NewStub(control_)),
      linear_logp_(v1::LinearLogpService::NewStub(control_)),
      tensors_(v1::TensorService::NewStub(control_)),
      benchmarks_(v1::BenchmarkService::NewStub(control_)) {}

absl::Status GrpcStub::Explain(absl::Status status) const {
  const bool unreachable = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  if (!unreachable || proxy_variable_.empty()) return status;
  absl::Status explained(status.code(), absl::StrCat(status.message(), " (a proxy was used: the environment variable ",
                                                     proxy_variable_, " named it)"));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) { explained.SetPayload(url, payload); });
  return explained;
}

template <typename Service, typename Method, typename Request, typename Response>
absl::StatusOr<Response> GrpcStub::Unary(const Attempt& attempt, Service& service, Method method,
                                         const Request& request, Response response) {
  AttemptContext context(attempt);
  const grpc::Status status = (service.*method)(context.get(), request, &response);
  if (!status.ok()) return Explain(FromGrpc(status, *context));
  return response;
}

template <typename Service, typename Method, typename Request, typename Response>
absl::Status GrpcStub::ReadAll(const Attempt& attempt, Service& service, Method method, const Request& request,
                               const std::function<void(const Response&)>& each) {
  AttemptContext context(attempt);
  const auto reader = (service.*method)(context.get(), request);
  Response response;
  while (reader->Read(&response)) each(response);
  return Explain(FromGrpc(reader->Finish(), *context));
}

absl::StatusOr<v1::ServerInfo> GrpcStub::GetServerInfo(const Attempt& attempt) {
  return Unary(attempt, *server_info_, &v1::ServerInfoService::Stub::GetServerInfo, v1::GetServerInfoRequest(),
               v1::ServerInfo());
}

absl::StatusOr<v1::ForwardResponse> GrpcStub::Forward(const Attempt& attempt, const v1::ForwardRequest& request) {
  return Unary(attempt, *linear_logp_, &v1::LinearLogpService::Stub::Forward, request, v1::ForwardResponse());
}

absl::StatusOr<v1::GradientResponse> GrpcStub::Gradient(const Attempt& attempt, const v1::GradientRequest& request) {
  return Unary(attempt, *linear_logp_, &v1::LinearLogpService::Stub::Gradient, request, v1::GradientResponse());
}

absl::StatusOr<v1::PlanResponse> GrpcStub::Plan(const Attempt& attempt, const v1::PlanRequest& request) {
  return Unary(attempt, *linear_logp_, &v1::LinearLogpService::Stub::Plan, request, v1::PlanResponse());
}

absl::Status GrpcStub::CheckContract(const Attempt& attempt, const v1::CheckContractRequest& request,
                                     const std::function<void(const v1::ContractRow&)>& row) {
  return ReadAll(attempt, *linear_logp_, &v1::LinearLogpService::Stub::CheckContract, request, row);
}

absl::StatusOr<v1::StreamGradientDone> GrpcStub::StreamGradient(const Attempt& attempt,
                                                                const v1::GradientRequest& header,
                                                                const std::vector<ConstBytes>& payload,
                                                                const Allocate& allocate) {
  const auto service = v1::LinearLogpService::NewStub(BulkChannel(attempt));
  AttemptContext context(attempt);
  auto done = RunStreamGradient(*service, context, header, payload, allocate);
  if (!done.ok()) return Explain(done.status());
  return done;
}

absl::StatusOr<v1::TensorInfo> GrpcStub::Put(const Attempt& attempt, const v1::PutHeader& header, ConstBytes payload) {
  const auto service = v1::TensorService::NewStub(BulkChannel(attempt));
  AttemptContext context(attempt);
  auto info = RunPut(*service, context, header, payload);
  if (!info.ok()) return Explain(info.status());
  return info;
}

absl::Status GrpcStub::Get(const Attempt& attempt, const v1::GetTensorRequest& request,
                           const AllocateTensor& allocate) {
  const auto service = v1::TensorService::NewStub(BulkChannel(attempt));
  AttemptContext context(attempt);
  return Explain(RunGet(*service, context, request, allocate));
}

absl::StatusOr<v1::TensorInfo> GrpcStub::Stat(const Attempt& attempt, const v1::StatTensorRequest& request) {
  return Unary(attempt, *tensors_, &v1::TensorService::Stub::Stat, request, v1::TensorInfo());
}

absl::StatusOr<v1::ListTensorsResponse> GrpcStub::ListTensors(const Attempt& attempt,
                                                              const v1::ListTensorsRequest& request) {
  return Unary(attempt, *tensors_, &v1::TensorService::Stub::List, request, v1::ListTensorsResponse());
}

absl::StatusOr<v1::TensorInfo> GrpcStub::Touch(const Attempt& attempt, const v1::TouchTensorRequest& request) {
  return Unary(attempt, *tensors_, &v1::TensorService::Stub::Touch, request, v1::TensorInfo());
}

absl::StatusOr<v1::DeleteTensorResponse> GrpcStub::Delete(const Attempt& attempt,
                                                          const v1::DeleteTensorRequest& request) {
  return Unary(attempt, *tensors_, &v1::TensorService::Stub::Delete, request, v1::DeleteTensorResponse());
}

absl::StatusOr<v1::BenchmarkJob> GrpcStub::Create(const Attempt& attempt, const v1::CreateJobRequest& request) {
  return Unary(attempt, *benchmarks_, &v1::BenchmarkService::Stub::Create, request, v1::BenchmarkJob());
}

absl::StatusOr<v1::BenchmarkJob> GrpcStub::GetJob(const Attempt& attempt, const v1::GetJobRequest& request) {
  return Unary(attempt, *benchmarks_, &v1::BenchmarkService::Stub::Get, request, v1::BenchmarkJob());
}

absl::StatusOr<v1::ListJobsResponse> GrpcStub::ListJobs(const Attempt& attempt, const v1::ListJobsRequest& request) {
  return Unary(attempt, *benchmarks_, &v1::BenchmarkService::Stub::List, request, v1::ListJobsResponse());
}

absl::StatusOr<v1::BenchmarkJob> GrpcStub::Cancel(const Attempt& attempt, const v1::CancelJobRequest& request) {
  return Unary(attempt, *benchmarks_, &v1::BenchmarkService::Stub::Cancel, request, v1::BenchmarkJob());
}

absl::Status GrpcStub::Watch(const Attempt& attempt, const v1::WatchJobRequest& request,
                             const std::function<void(const v1::JobEvent&)>& event) {
  return ReadAll(attempt, *benchmarks_, &v1::BenchmarkService::Stub::Watch, request, event);
}

absl::Status GrpcStub::GetReport(const Attempt& attempt, const v1::GetReportRequest& request,
                                 const std::function<void(const v1::GetReportResponse&)>& piece) {
  return ReadAll(attempt, *benchmarks_, &v1::BenchmarkService::Stub::GetReport, request, piece);
}

std::shared_ptr<grpc::Channel> GrpcStub::BulkChannel(const Attempt& attempt) {
  {
    const MutexLock lock(&mutex_);
    if (bulk_ != nullptr) return bulk_;
  }
  // Not under the lock: these wait for the network. Two first calls at once may both probe; the first result stays.
  const auto info = GetServerInfo(attempt);
  if (!info.ok()) return control_;  // The call itself will meet the same error, and report it.
  std::string notice;
  auto channel = ProbeBulk(*info, &notice);
  const MutexLock lock(&mutex_);
  if (bulk_ == nullptr) {
    bulk_ = std::move(channel);
    if (!notice.empty() && notice_) notice_(notice);
  }
  return bulk_;
}

std::shared_ptr<grpc::Channel> GrpcStub::ProbeBulk(const v1::ServerInfo& info, std::string* notice) const {
  Address bulk = address_;
  if (!info.advertise_bulk().empty()) {
    const auto advertised = ParseAddress(info.advertise_bulk());
    if (!advertised.ok()) {
      *notice = absl::StrCat("the server's bulk address ", PrintableText(info.advertise_bulk(), 256),
                             " can't be read: tensors go over the control connection");
      return control_;
    }
    bulk = *advertised;
  } else if (info.bulk_port() > 0 && address_.unix_path.empty()) {
    bulk.port = info.bulk_port();
  } else {
    return control_;
  }
  auto channel = MakeChannel(bulk, Traffic::kBulk);
  const auto limit = std::chrono::system_clock::now() + absl::ToChronoMilliseconds(bulk_probe_timeout_);
  if (channel->WaitForConnected(limit)) return channel;
  *notice = absl::StrCat("the server's bulk address ", bulk.Target(),
                         " doesn't answer: tensors go over the control connection");
  return control_;
}

}  // namespace keval
