#include "client/grpc_stub.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/sha256.h"
#include "base/text.h"
#include "client/attempt_context.h"
#include "client/grpc_status.h"
#include "client/tensor_streams.h"
#include "wire/frame.h"

namespace keval {
namespace {
// From here on two connections are faster than one.
constexpr std::size_t kInPartsBytes = std::size_t{8} << 20;
// What is on its way into a socket is out of it sooner, unless its peer has stopped reading.
constexpr std::chrono::milliseconds kSlowReturn{500};
}  // namespace

GrpcStub::GrpcStub(Address address, std::shared_ptr<Credentials> credentials, absl::Duration bulk_probe_timeout,
                   std::function<void(const std::string&)> notice, int bulk_connections)
    : address_(std::move(address)),
      credentials_(std::move(credentials)),
      proxy_variable_(ProxyVariable(address_)),
      bulk_probe_timeout_(bulk_probe_timeout),
      notice_(std::move(notice)),
      bulk_connections_(bulk_connections),
      control_(MakeChannel(address_, Traffic::kControl, credentials_->ForChannel(address_))),
      server_info_(v1::ServerInfoService::NewStub(control_)),
      health_(grpc::health::v1::Health::NewStub(control_)),
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
  const auto authorization = credentials_->Authorization();
  if (!authorization.ok()) return authorization.status();
  AttemptContext context(attempt, *authorization);
  const grpc::Status status = (service.*method)(context.get(), request, &response);
  if (!status.ok()) return Explain(FromGrpc(status, *context));
  return response;
}

template <typename Service, typename Method, typename Request, typename Response>
absl::Status GrpcStub::ReadAll(const Attempt& attempt, Service& service, Method method, const Request& request,
                               const std::function<void(const Response&)>& each) {
  const auto authorization = credentials_->Authorization();
  if (!authorization.ok()) return authorization.status();
  AttemptContext context(attempt, *authorization);
  const auto reader = (service.*method)(context.get(), request);
  Response response;
  while (reader->Read(&response)) each(response);
  return Explain(FromGrpc(reader->Finish(), *context));
}

absl::StatusOr<v1::ServerInfo> GrpcStub::GetServerInfo(const Attempt& attempt) {
  return Unary(attempt, *server_info_, &v1::ServerInfoService::Stub::GetServerInfo, v1::GetServerInfoRequest(),
               v1::ServerInfo());
}

absl::StatusOr<bool> GrpcStub::IsServing(const Attempt& attempt, const std::string& service) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  const auto response = Unary(attempt, *health_, &grpc::health::v1::Health::Stub::Check, request,
                              grpc::health::v1::HealthCheckResponse());
  if (!response.ok()) return response.status();
  return response->status() == grpc::health::v1::HealthCheckResponse::SERVING;
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
  auto bulk = GetBulk(attempt);
  const auto authorization = credentials_->Authorization();
  if (!authorization.ok()) return authorization.status();
  v1::GradientRequest request = header;
  if (bulk->xxh3 && request.digest() == v1::PAYLOAD_DIGEST_UNSPECIFIED) request.set_digest(v1::PAYLOAD_DIGEST_XXH3);
  request.set_interleave(true);
  wire::MemoryLoan loan;
  absl::StatusOr<v1::StreamGradientDone> done;
  {
    AttemptContext context(attempt, *authorization);
    done = RunStreamGradient(bulk->channels.front().get(), context, request, payload, loan.owner(), allocate);
  }
  TakeBack(&loan, &bulk);
  if (!done.ok()) return Explain(done.status());
  return done;
}

absl::StatusOr<v1::TensorInfo> GrpcStub::Put(const Attempt& attempt, const v1::PutHeader& header, ConstBytes payload) {
  auto bulk = GetBulk(attempt);
  const auto authorization = credentials_->Authorization();
  if (!authorization.ok()) return authorization.status();
  v1::PutHeader request = header;
  if (bulk->xxh3 && request.digest() == v1::PAYLOAD_DIGEST_UNSPECIFIED) request.set_digest(v1::PAYLOAD_DIGEST_XXH3);
  // A SHA-256 of parts is none of the whole, and slower than one connection anyway.
  const bool in_parts = bulk->xxh3 && bulk->channels.size() > 1 && payload.size() >= kInPartsBytes &&
                        request.digest() != v1::PAYLOAD_DIGEST_SHA256;
  wire::MemoryLoan loan;
  absl::StatusOr<v1::TensorInfo> info;
  if (in_parts) {
    info = PutInParts(attempt, *bulk, request, payload, *authorization, loan.owner());
  } else {
    AttemptContext context(attempt, *authorization);
    info = RunPut(bulk->channels.front().get(), context, request, payload, loan.owner());
  }
  TakeBack(&loan, &bulk);
  if (!info.ok()) return Explain(info.status());
  return info;
}

absl::StatusOr<v1::TensorInfo> GrpcStub::PutInParts(const Attempt& attempt, const Bulk& bulk,
                                                    const v1::PutHeader& header, ConstBytes payload,
                                                    const std::string& authorization,
                                                    const std::shared_ptr<const void>& lent) {
  v1::PutHeader first = header;
  first.mutable_part()->set_upload_id(absl::HexStringToBytes(RandomHex128()));
  // In whole frames, so that no part ends with a small one.
  const std::size_t half = payload.size() / 2 / wire::kSentFrameBytes * wire::kSentFrameBytes;
  first.mutable_part()->set_size(static_cast<std::int64_t>(half));
  v1::PutHeader second = first;
  second.mutable_part()->set_begin(static_cast<std::int64_t>(half));
  second.mutable_part()->set_size(static_cast<std::int64_t>(payload.size() - half));

  AttemptContext contexts[2] = {AttemptContext(attempt, authorization), AttemptContext(attempt, authorization)};
  absl::StatusOr<v1::TensorInfo> infos[2];
  // A part that fails ends the other.
  const auto run = [&](int part, const v1::PutHeader& part_header, ConstBytes bytes) {
    infos[part] = RunPut(bulk.channels[static_cast<std::size_t>(part)].get(), contexts[part], part_header, bytes, lent);
    if (!infos[part].ok()) contexts[1 - part].get()->TryCancel();
  };
  std::thread other([&] { run(1, second, payload.subspan(half)); });
  run(0, first, payload.subspan(0, half));
  other.join();
  // Of two failures the one that isn't the other's echo.
  const auto is_echo = [](const absl::Status& status) { return absl::IsAborted(status) || absl::IsCancelled(status); };
  for (const auto& info : infos) {
    if (!info.ok() && !is_echo(info.status())) return info.status();
  }
  for (const auto& info : infos) {
    if (!info.ok()) return info.status();
  }
  for (const auto& info : infos) {
    if (!info->handle().empty()) return info;
  }
  return absl::DataLossError("the server has every part and names no tensor");
}

void GrpcStub::TakeBack(wire::MemoryLoan* loan, std::shared_ptr<const Bulk>* bulk) {
  if (loan->AwaitReturn(kSlowReturn)) return;
  {
    const MutexLock lock(&mutex_);
    if (bulk_ == *bulk) bulk_ = nullptr;
  }
  // The last reference closes the connections, and with them goes what they hold. Where another call still uses them,
  // or it is the control channel, keepalive ends them.
  bulk->reset();
  while (!loan->AwaitReturn(std::chrono::seconds(1))) continue;
}

absl::Status GrpcStub::Get(const Attempt& attempt, const v1::GetTensorRequest& request,
                           const AllocateTensor& allocate) {
  const auto bulk = GetBulk(attempt);
  v1::GetTensorRequest with_digest = request;
  if (bulk->xxh3 && request.digest() == v1::PAYLOAD_DIGEST_UNSPECIFIED) {
    with_digest.set_digest(v1::PAYLOAD_DIGEST_XXH3);
  }
  const auto authorization = credentials_->Authorization();
  if (!authorization.ok()) return authorization.status();
  AttemptContext context(attempt, *authorization);
  return Explain(RunGet(bulk->channels.front().get(), context, with_digest, allocate));
}

absl::StatusOr<v1::TensorInfo> GrpcStub::Reuse(const Attempt& attempt, const v1::ReuseTensorRequest& request) {
  return Unary(attempt, *tensors_, &v1::TensorService::Stub::Reuse, request, v1::TensorInfo());
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

absl::StatusOr<v1::GradientSession> GrpcStub::CreateSession(const Attempt& attempt,
                                                            const v1::CreateSessionRequest& request) {
  return Unary(attempt, *linear_logp_, &v1::LinearLogpService::Stub::CreateSession, request, v1::GradientSession());
}

absl::StatusOr<v1::GradientSession> GrpcStub::GetSession(const Attempt& attempt, const v1::GetSessionRequest& request) {
  return Unary(attempt, *linear_logp_, &v1::LinearLogpService::Stub::GetSession, request, v1::GradientSession());
}

absl::StatusOr<v1::ListSessionsResponse> GrpcStub::ListSessions(const Attempt& attempt,
                                                                const v1::ListSessionsRequest& request) {
  return Unary(attempt, *linear_logp_, &v1::LinearLogpService::Stub::ListSessions, request, v1::ListSessionsResponse());
}

absl::StatusOr<v1::GradientSession> GrpcStub::TouchSession(const Attempt& attempt,
                                                           const v1::TouchSessionRequest& request) {
  return Unary(attempt, *linear_logp_, &v1::LinearLogpService::Stub::TouchSession, request, v1::GradientSession());
}

absl::StatusOr<v1::DeleteSessionResponse> GrpcStub::DeleteSession(const Attempt& attempt,
                                                                  const v1::DeleteSessionRequest& request) {
  return Unary(attempt, *linear_logp_, &v1::LinearLogpService::Stub::DeleteSession, request,
               v1::DeleteSessionResponse());
}

absl::StatusOr<v1::GradientSession> GrpcStub::ZeroSession(const Attempt& attempt,
                                                          const v1::ZeroSessionRequest& request) {
  return Unary(attempt, *linear_logp_, &v1::LinearLogpService::Stub::ZeroSession, request, v1::GradientSession());
}

absl::StatusOr<v1::FetchSessionResponse> GrpcStub::FetchSession(const Attempt& attempt,
                                                                const v1::FetchSessionRequest& request) {
  return Unary(attempt, *linear_logp_, &v1::LinearLogpService::Stub::FetchSession, request, v1::FetchSessionResponse());
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

std::shared_ptr<const GrpcStub::Bulk> GrpcStub::GetBulk(const Attempt& attempt) {
  {
    const MutexLock lock(&mutex_);
    if (bulk_ != nullptr) return bulk_;
  }
  // Not under the lock: these wait for the network. Two first calls at once may both probe; the first result stays.
  auto bulk = std::make_shared<Bulk>();
  const auto info = GetServerInfo(attempt);
  if (!info.ok()) {
    bulk->channels = {control_};  // The call itself will meet the same error, and report it.
    return bulk;
  }
  std::string notice;
  bulk->channels = ProbeBulk(*info, &notice);
  const auto& digests = info->payload_digests();
  bulk->xxh3 = std::find(digests.begin(), digests.end(), v1::PAYLOAD_DIGEST_XXH3) != digests.end();
  const MutexLock lock(&mutex_);
  if (bulk_ == nullptr) {
    bulk_ = std::move(bulk);
    if (!notice.empty() && notice_) notice_(notice);
  }
  return bulk_;
}

std::vector<std::shared_ptr<grpc::Channel>> GrpcStub::ProbeBulk(const v1::ServerInfo& info, std::string* notice) const {
  Address bulk = address_;
  if (!info.advertise_bulk().empty()) {
    const auto advertised = ParseAddress(info.advertise_bulk());
    if (!advertised.ok()) {
      *notice = absl::StrCat("the server's bulk address ", PrintableText(info.advertise_bulk(), 256),
                             " can't be read: tensors go over the control connection");
      return {control_};
    }
    bulk = *advertised;
  } else if (info.bulk_port() > 0 && address_.unix_path.empty()) {
    bulk.port = info.bulk_port();
  } else {
    return {control_};
  }
  if (!credentials_->MayGoTo(bulk)) {
    *notice = absl::StrCat("the server's bulk address ", bulk.Target(),
                           " can't be used without TLS: tensors go over the control connection");
    return {control_};
  }
  auto channel = MakeChannel(bulk, Traffic::kBulk, credentials_->ForChannel(bulk));
  const auto limit = std::chrono::system_clock::now() + absl::ToChronoMilliseconds(bulk_probe_timeout_);
  if (channel->WaitForConnected(limit)) {
    std::vector<std::shared_ptr<grpc::Channel>> channels = {std::move(channel)};
    // The second connects when it is first used.
    if (bulk_connections_ > 1) channels.push_back(MakeChannel(bulk, Traffic::kBulk, credentials_->ForChannel(bulk)));
    return channels;
  }
  *notice = absl::StrCat("the server's bulk address ", bulk.Target(),
                         " doesn't answer: tensors go over the control connection");
  return {control_};
}

}  // namespace keval
