// The Connection that programs get: retries, deadlines and reconnecting over a Stub.
#ifndef KEVAL_CLIENT_CONNECTION_IMPL_H_
#define KEVAL_CLIENT_CONNECTION_IMPL_H_

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/retry.h"
#include "client/stub.h"
#include "keval/connection.h"

namespace keval {

// Thread-safe.
class ConnectionImpl : public Connection {
 public:
  ConnectionImpl(ConnectionOptions options, std::unique_ptr<Stub> stub)
      : options_(std::move(options)), stub_(std::move(stub)) {}

  absl::StatusOr<v1::ServerInfo> GetServerInfo(const CallOptions& options) override;
  absl::StatusOr<bool> IsServing(const std::string& service, const CallOptions& options) override;
  absl::StatusOr<GradientResult> Gradient(const GradientParams& params, const CallOptions& options) override;
  absl::StatusOr<v1::PlanResponse> Plan(const v1::PlanRequest& request, const CallOptions& options) override;
  absl::Status CheckContract(const v1::CheckContractRequest& request,
                             const std::function<void(const v1::ContractRow&)>& row,
                             const CallOptions& options) override;
  absl::StatusOr<v1::TensorInfo> PutTensor(const TensorView& tensor, absl::Duration lease,
                                           const CallOptions& options) override;
  absl::StatusOr<v1::TensorInfo> PutTensorIfNew(const TensorView& tensor, absl::Duration lease,
                                                const CallOptions& options) override;
  absl::StatusOr<Tensor> GetTensor(const std::string& handle, const CallOptions& options) override;
  absl::StatusOr<v1::TensorInfo> GetTensorInto(const std::string& handle, absl::Span<std::byte> destination,
                                               const CallOptions& options) override;
  absl::StatusOr<v1::TensorInfo> StatTensor(const std::string& handle, const CallOptions& options) override;
  absl::StatusOr<std::vector<v1::TensorInfo>> ListTensors(const CallOptions& options) override;
  absl::StatusOr<v1::TensorInfo> TouchTensor(const std::string& handle, absl::Duration lease,
                                             const CallOptions& options) override;
  absl::Status DeleteTensor(const std::string& handle, const CallOptions& options) override;
  absl::StatusOr<v1::GradientSession> CreateSession(const SessionParams& params, const CallOptions& options) override;
  absl::StatusOr<v1::GradientSession> GetSession(const std::string& session, const CallOptions& options) override;
  absl::StatusOr<std::vector<v1::GradientSession>> ListSessions(const CallOptions& options) override;
  absl::StatusOr<v1::GradientSession> TouchSession(const std::string& session, absl::Duration lease,
                                                   const CallOptions& options) override;
  absl::Status DeleteSession(const std::string& session, const CallOptions& options) override;
  absl::StatusOr<v1::GradientSession> ZeroSession(const std::string& session, const CallOptions& options) override;
  absl::StatusOr<SessionSums> FetchSession(const std::string& session, bool reset, const std::string& request_id,
                                           const CallOptions& options) override;
  absl::StatusOr<v1::BenchmarkJob> CreateJob(v1::CreateJobRequest request, const CallOptions& options) override;
  absl::StatusOr<v1::BenchmarkJob> GetJob(const std::string& name, const CallOptions& options) override;
  absl::StatusOr<std::vector<v1::BenchmarkJob>> ListJobs(const ListJobsParams& params,
                                                         const CallOptions& options) override;
  absl::Status WatchJob(const WatchParams& params, const std::function<void(const v1::JobEvent&)>& event,
                        const CallOptions& options) override;
  absl::StatusOr<v1::BenchmarkJob> CancelJob(const std::string& name, const CallOptions& options) override;
  absl::StatusOr<std::vector<ReportFile>> GetReport(const std::string& name, const std::vector<std::string>& file_names,
                                                    const CallOptions& options) override;

 private:
  static constexpr int kPageSize = 1000;  // Of lists.

  // How long a call may take where its caller doesn't say: calls that move tensors or wait for work have no limit.
  enum class Kind : std::uint8_t { kControl, kLong };
  absl::Time Deadline(const CallOptions& options, Kind kind) const;
  template <typename Function>
  auto Call(const CallOptions& options, Kind kind, Repeatable repeatable, const Function& attempt_once) {
    return Retry(options_, repeatable, Deadline(options, kind), options.cancel.get(), attempt_once);
  }

  // `operand` as a message: a handle, its bytes where they are at most `inline_bytes`, else the handle of a tensor that
  // is stored for the call and named in `stored`.
  absl::StatusOr<v1::Operand> ToOperand(absl::string_view name, const Operand& operand, std::int64_t inline_bytes,
                                        const CallOptions& options, std::vector<std::string>* stored);

  // ServerInfo.limits.max_unary_bytes, asked for once.
  absl::StatusOr<std::int64_t> MaxUnaryBytes(const CallOptions& options);

  const ConnectionOptions options_;
  const std::unique_ptr<Stub> stub_;
  Mutex mutex_;
  std::optional<std::int64_t> max_unary_bytes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace keval

#endif  // KEVAL_CLIENT_CONNECTION_IMPL_H_
