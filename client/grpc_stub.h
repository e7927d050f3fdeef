// Stub over gRPC: a channel for small calls, and two for tensors.
#ifndef KEVAL_CLIENT_GRPC_STUB_H_
#define KEVAL_CLIENT_GRPC_STUB_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/channel.h"
#include "client/credentials.h"
#include "client/stub.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "keval/v1/benchmark.grpc.pb.h"
#include "keval/v1/linear_logp.grpc.pb.h"
#include "keval/v1/server_info.grpc.pb.h"
#include "keval/v1/tensor.grpc.pb.h"
#include "wire/memory_loan.h"

namespace keval {

// Thread-safe. The bulk channels are opened at the first call that carries a stream of tensor bytes: the server is
// asked for its bulk address, which gets `bulk_probe_timeout` to answer; otherwise such calls stay on the control
// channel, and `notice` is told once. Payloads are sent from the caller's memory, and are verified by XXH3 where the
// server knows it (else by SHA-256) unless the request names another digest; a large Put goes over two channels at
// once.
class GrpcStub : public Stub {
 public:
  GrpcStub(Address address, std::shared_ptr<Credentials> credentials, absl::Duration bulk_probe_timeout,
           std::function<void(const std::string&)> notice, int bulk_connections = 2);

  absl::StatusOr<v1::ServerInfo> GetServerInfo(const Attempt& attempt) override;
  absl::StatusOr<bool> IsServing(const Attempt& attempt, const std::string& service) override;
  absl::StatusOr<v1::ForwardResponse> Forward(const Attempt& attempt, const v1::ForwardRequest& request) override;
  absl::StatusOr<v1::GradientResponse> Gradient(const Attempt& attempt, const v1::GradientRequest& request) override;
  absl::StatusOr<v1::StreamGradientDone> StreamGradient(const Attempt& attempt, const v1::GradientRequest& header,
                                                        const std::vector<ConstBytes>& payload,
                                                        const Allocate& allocate) override;
  absl::StatusOr<v1::PlanResponse> Plan(const Attempt& attempt, const v1::PlanRequest& request) override;
  absl::Status CheckContract(const Attempt& attempt, const v1::CheckContractRequest& request,
                             const std::function<void(const v1::ContractRow&)>& row) override;
  absl::StatusOr<v1::TensorInfo> Put(const Attempt& attempt, const v1::PutHeader& header, ConstBytes payload) override;
  absl::Status Get(const Attempt& attempt, const v1::GetTensorRequest& request,
                   const AllocateTensor& allocate) override;
  absl::StatusOr<v1::TensorInfo> Reuse(const Attempt& attempt, const v1::ReuseTensorRequest& request) override;
  absl::StatusOr<v1::TensorInfo> Stat(const Attempt& attempt, const v1::StatTensorRequest& request) override;
  absl::StatusOr<v1::ListTensorsResponse> ListTensors(const Attempt& attempt,
                                                      const v1::ListTensorsRequest& request) override;
  absl::StatusOr<v1::TensorInfo> Touch(const Attempt& attempt, const v1::TouchTensorRequest& request) override;
  absl::StatusOr<v1::DeleteTensorResponse> Delete(const Attempt& attempt,
                                                  const v1::DeleteTensorRequest& request) override;
  absl::StatusOr<v1::GradientSession> CreateSession(const Attempt& attempt,
                                                    const v1::CreateSessionRequest& request) override;
  absl::StatusOr<v1::GradientSession> GetSession(const Attempt& attempt, const v1::GetSessionRequest& request) override;
  absl::StatusOr<v1::ListSessionsResponse> ListSessions(const Attempt& attempt,
                                                        const v1::ListSessionsRequest& request) override;
  absl::StatusOr<v1::GradientSession> TouchSession(const Attempt& attempt,
                                                   const v1::TouchSessionRequest& request) override;
  absl::StatusOr<v1::DeleteSessionResponse> DeleteSession(const Attempt& attempt,
                                                          const v1::DeleteSessionRequest& request) override;
  absl::StatusOr<v1::GradientSession> ZeroSession(const Attempt& attempt,
                                                  const v1::ZeroSessionRequest& request) override;
  absl::StatusOr<v1::FetchSessionResponse> FetchSession(const Attempt& attempt,
                                                        const v1::FetchSessionRequest& request) override;
  absl::StatusOr<v1::BenchmarkJob> Create(const Attempt& attempt, const v1::CreateJobRequest& request) override;
  absl::StatusOr<v1::BenchmarkJob> GetJob(const Attempt& attempt, const v1::GetJobRequest& request) override;
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const Attempt& attempt, const v1::ListJobsRequest& request) override;
  absl::Status Watch(const Attempt& attempt, const v1::WatchJobRequest& request,
                     const std::function<void(const v1::JobEvent&)>& event) override;
  absl::StatusOr<v1::BenchmarkJob> Cancel(const Attempt& attempt, const v1::CancelJobRequest& request) override;
  absl::Status GetReport(const Attempt& attempt, const v1::GetReportRequest& request,
                         const std::function<void(const v1::GetReportResponse&)>& piece) override;

 private:
  // How tensor bytes travel.
  struct Bulk {
    std::vector<std::shared_ptr<grpc::Channel>> channels;  // At least one.
    bool xxh3 = false;                                     // The server knows XXH3, and with it uploads in parts.
  };

  // Opens it at the first call.
  std::shared_ptr<const Bulk> GetBulk(const Attempt& attempt);
  // The channels to the bulk address, or why there are none in `notice` (empty: nothing worth saying).
  std::vector<std::shared_ptr<grpc::Channel>> ProbeBulk(const v1::ServerInfo& info, std::string* notice) const;
  // Waits until gRPC reads the caller's memory no more. Where the connection keeps it, since its peer has stopped
  // reading, the bulk channels are given up: the next call opens new ones.
  void TakeBack(wire::MemoryLoan* loan, std::shared_ptr<const Bulk>* bulk);
  absl::StatusOr<v1::TensorInfo> PutInParts(const Attempt& attempt, const Bulk& bulk, const v1::PutHeader& header,
                                            ConstBytes payload, const std::string& authorization,
                                            const std::shared_ptr<const void>& lent);
  // UNAVAILABLE and DEADLINE_EXCEEDED behind a proxy say so, naming the variable that named it.
  absl::Status Explain(absl::Status status) const;

  template <typename Service, typename Method, typename Request, typename Response>
  absl::StatusOr<Response> Unary(const Attempt& attempt, Service& service, Method method, const Request& request,
                                 Response response);
  template <typename Service, typename Method, typename Request, typename Response>
  absl::Status ReadAll(const Attempt& attempt, Service& service, Method method, const Request& request,
                       const std::function<void(const Response&)>& each);

  const Address address_;
  const std::shared_ptr<Credentials> credentials_;
  const std::string proxy_variable_;
  const absl::Duration bulk_probe_timeout_;
  const std::function<void(const std::string&)> notice_;
  const int bulk_connections_;
  const std::shared_ptr<grpc::Channel> control_;
  const std::unique_ptr<v1::ServerInfoService::Stub> server_info_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  const std::unique_ptr<v1::LinearLogpService::Stub> linear_logp_;
  const std::unique_ptr<v1::TensorService::Stub> tensors_;
  const std::unique_ptr<v1::BenchmarkService::Stub> benchmarks_;

  Mutex mutex_;
  std::shared_ptr<const Bulk> bulk_ ABSL_GUARDED_BY(mutex_);  // Null until opened; control_ where there is no other.
};

}  // namespace keval

#endif  // KEVAL_CLIENT_GRPC_STUB_H_
