// One attempt at each RPC, without retries: the seam between the connection's policies and gRPC.
#ifndef KEVAL_CLIENT_STUB_H_
#define KEVAL_CLIENT_STUB_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "keval/call_options.h"
#include "keval/v1/benchmark.pb.h"
#include "keval/v1/linear_logp.pb.h"
#include "keval/v1/server_info.pb.h"
#include "keval/v1/tensor.pb.h"

namespace keval {

struct Attempt {
  absl::Time deadline = absl::InfiniteFuture();
  CancelSource* cancel = nullptr;
};

using ConstBytes = absl::Span<const std::byte>;
using MutableBytes = absl::Span<std::byte>;

// Thread-safe. Memory passed in stays valid and unchanged for the call.
class Stub {
 public:
  virtual ~Stub() = default;

  virtual absl::StatusOr<v1::ServerInfo> GetServerInfo(const Attempt& attempt) = 0;
  virtual absl::StatusOr<bool> IsServing(const Attempt& attempt, const std::string& service) = 0;

  virtual absl::StatusOr<v1::ForwardResponse> Forward(const Attempt& attempt, const v1::ForwardRequest& request) = 0;
  virtual absl::StatusOr<v1::GradientResponse> Gradient(const Attempt& attempt, const v1::GradientRequest& request) = 0;
  // Sends `header`, then `payload`; `allocate` turns the answer's header into the memory that its payload fills. A
  // refusal that comes while the payload is still being sent ends the call at once, with the server's status.
  using Allocate = std::function<absl::StatusOr<std::vector<MutableBytes>>(const v1::GradientResponse& header)>;
  virtual absl::StatusOr<v1::StreamGradientDone> StreamGradient(const Attempt& attempt,
                                                                const v1::GradientRequest& header,
                                                                const std::vector<ConstBytes>& payload,
                                                                const Allocate& allocate) = 0;
  virtual absl::StatusOr<v1::PlanResponse> Plan(const Attempt& attempt, const v1::PlanRequest& request) = 0;
  virtual absl::Status CheckContract(const Attempt& attempt, const v1::CheckContractRequest& request,
                                     const std::function<void(const v1::ContractRow&)>& row) = 0;

  virtual absl::StatusOr<v1::TensorInfo> Put(const Attempt& attempt, const v1::PutHeader& header,
                                             ConstBytes payload) = 0;
  using AllocateTensor = std::function<absl::StatusOr<MutableBytes>(const v1::TensorInfo& header)>;
  virtual absl::Status Get(const Attempt& attempt, const v1::GetTensorRequest& request,
                           const AllocateTensor& allocate) = 0;
  virtual absl::StatusOr<v1::TensorInfo> Reuse(const Attempt& attempt, const v1::ReuseTensorRequest& request) = 0;
  virtual absl::StatusOr<v1::TensorInfo> Stat(const Attempt& attempt, const v1::StatTensorRequest& request) = 0;
  virtual absl::StatusOr<v1::ListTensorsResponse> ListTensors(const Attempt& attempt,
                                                              const v1::ListTensorsRequest& request) = 0;
  virtual absl::StatusOr<v1::TensorInfo> Touch(const Attempt& attempt, const v1::TouchTensorRequest& request) = 0;
  virtual absl::StatusOr<v1::DeleteTensorResponse> Delete(const Attempt& attempt,
                                                          const v1::DeleteTensorRequest& request) = 0;

  virtual absl::StatusOr<v1::GradientSession> CreateSession(const Attempt& attempt,
                                                            const v1::CreateSessionRequest& request) = 0;
  virtual absl::StatusOr<v1::GradientSession> GetSession(const Attempt& attempt,
                                                         const v1::GetSessionRequest& request) = 0;
  virtual absl::StatusOr<v1::ListSessionsResponse> ListSessions(const Attempt& attempt,
                                                                const v1::ListSessionsRequest& request) = 0;
  virtual absl::StatusOr<v1::GradientSession> TouchSession(const Attempt& attempt,
                                                           const v1::TouchSessionRequest& request) = 0;
  virtual absl::StatusOr<v1::DeleteSessionResponse> DeleteSession(const Attempt& attempt,
                                                                  const v1::DeleteSessionRequest& request) = 0;
  virtual absl::StatusOr<v1::GradientSession> ZeroSession(const Attempt& attempt,
                                                          const v1::ZeroSessionRequest& request) = 0;
  virtual absl::StatusOr<v1::FetchSessionResponse> FetchSession(const Attempt& attempt,
                                                                const v1::FetchSessionRequest& request) = 0;

  virtual absl::StatusOr<v1::BenchmarkJob> Create(const Attempt& attempt, const v1::CreateJobRequest& request) = 0;
  virtual absl::StatusOr<v1::BenchmarkJob> GetJob(const Attempt& attempt, const v1::GetJobRequest& request) = 0;
  virtual absl::StatusOr<v1::ListJobsResponse> ListJobs(const Attempt& attempt, const v1::ListJobsRequest& request) = 0;
  virtual absl::Status Watch(const Attempt& attempt, const v1::WatchJobRequest& request,
                             const std::function<void(const v1::JobEvent&)>& event) = 0;
  virtual absl::StatusOr<v1::BenchmarkJob> Cancel(const Attempt& attempt, const v1::CancelJobRequest& request) = 0;
  virtual absl::Status GetReport(const Attempt& attempt, const v1::GetReportRequest& request,
                                 const std::function<void(const v1::GetReportResponse&)>& piece) = 0;
};

}  // namespace keval

#endif  // KEVAL_CLIENT_STUB_H_
