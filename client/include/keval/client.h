// keval's client: gradients of linear_logp, resident tensors and paired benchmark jobs on a keval server.
//
//   auto client = keval::Client::Connect("127.0.0.1:7400");
//   auto result = client->Gradient({.hidden = h, .weight = w, .targets = t, .grad_logp = g});
#ifndef KEVAL_CLIENT_H_
#define KEVAL_CLIENT_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "keval/call_options.h"
#include "keval/connection.h"
#include "keval/tensor.h"

namespace keval {

// A handle on a Connection: cheap to copy, thread-safe. What each call does and returns: Connection.
class Client {
 public:
  explicit Client(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  static absl::StatusOr<Client> Connect(const std::string& server);
  static absl::StatusOr<Client> Connect(ConnectionOptions options);

  absl::StatusOr<v1::ServerInfo> GetServerInfo(const CallOptions& options = {}) const {
    return connection_->GetServerInfo(options);
  }

  absl::StatusOr<bool> IsServing(const std::string& service, const CallOptions& options = {}) const {
    return connection_->IsServing(service, options);
  }

  // logp and the gradients wanted.
  absl::StatusOr<GradientResult> Gradient(const GradientParams& params, const CallOptions& options = {}) const;
  // logp alone; grad_logp and want are ignored.
  absl::StatusOr<GradientResult> Forward(GradientParams params, const CallOptions& options = {}) const;
  absl::StatusOr<v1::PlanResponse> Plan(const v1::PlanRequest& request, const CallOptions& options = {}) const {
    return connection_->Plan(request, options);
  }
  absl::Status CheckContract(const v1::CheckContractRequest& request,
                             const std::function<void(const v1::ContractRow&)>& row,
                             const CallOptions& options = {}) const {
    return connection_->CheckContract(request, row, options);
  }

  // `lease`: zero is the server's default.
  absl::StatusOr<v1::TensorInfo> PutTensor(const TensorView& tensor, absl::Duration lease = absl::ZeroDuration(),
                                           const CallOptions& options = {}) const {
    return connection_->PutTensor(tensor, lease, options);
  }
  absl::StatusOr<v1::TensorInfo> PutTensorIfNew(const TensorView& tensor, absl::Duration lease = absl::ZeroDuration(),
                                                const CallOptions& options = {}) const {
    return connection_->PutTensorIfNew(tensor, lease, options);
  }
  absl::StatusOr<Tensor> GetTensor(const std::string& handle, const CallOptions& options = {}) const {
    return connection_->GetTensor(handle, options);
  }
  absl::StatusOr<v1::TensorInfo> GetTensorInto(const std::string& handle, absl::Span<std::byte> destination,
                                               const CallOptions& options = {}) const {
    return connection_->GetTensorInto(handle, destination, options);
  }
  absl::StatusOr<v1::TensorInfo> StatTensor(const std::string& handle, const CallOptions& options = {}) const {
    return connection_->StatTensor(handle, options);
  }
  absl::StatusOr<std::vector<v1::TensorInfo>> ListTensors(const CallOptions& options = {}) const {
    return connection_->ListTensors(options);
  }
  absl::StatusOr<v1::TensorInfo> TouchTensor(const std::string& handle, absl::Duration lease,
                                             const CallOptions& options = {}) const {
    return connection_->TouchTensor(handle, lease, options);
  }
  absl::Status DeleteTensor(const std::string& handle, const CallOptions& options = {}) const {
    return connection_->DeleteTensor(handle, options);
  }

  absl::StatusOr<v1::GradientSession> CreateSession(const SessionParams& params,
                                                    const CallOptions& options = {}) const {
    return connection_->CreateSession(params, options);
  }
  absl::StatusOr<v1::GradientSession> GetSession(const std::string& session, const CallOptions& options = {}) const {
    return connection_->GetSession(session, options);
  }
  absl::StatusOr<std::vector<v1::GradientSession>> ListSessions(const CallOptions& options = {}) const {
    return connection_->ListSessions(options);
  }
  absl::StatusOr<v1::GradientSession> TouchSession(const std::string& session,
                                                   absl::Duration lease = absl::ZeroDuration(),
                                                   const CallOptions& options = {}) const {
    return connection_->TouchSession(session, lease, options);
  }
  absl::Status DeleteSession(const std::string& session, const CallOptions& options = {}) const {
    return connection_->DeleteSession(session, options);
  }
  absl::StatusOr<v1::GradientSession> ZeroSession(const std::string& session, const CallOptions& options = {}) const {
    return connection_->ZeroSession(session, options);
  }
  absl::StatusOr<SessionSums> FetchSession(const std::string& session, bool reset, const std::string& request_id = "",
                                           const CallOptions& options = {}) const {
    return connection_->FetchSession(session, reset, request_id, options);
  }

  absl::StatusOr<v1::BenchmarkJob> CreateJob(v1::CreateJobRequest request, const CallOptions& options = {}) const {
    return connection_->CreateJob(std::move(request), options);
  }
  absl::StatusOr<v1::BenchmarkJob> GetJob(const std::string& name, const CallOptions& options = {}) const {
    return connection_->GetJob(name, options);
  }
  absl::StatusOr<std::vector<v1::BenchmarkJob>> ListJobs(const ListJobsParams& params = {},
                                                         const CallOptions& options = {}) const {
    return connection_->ListJobs(params, options);
  }
  absl::Status WatchJob(const WatchParams& params, const std::function<void(const v1::JobEvent&)>& event,
                        const CallOptions& options = {}) const {
    return connection_->WatchJob(params, event, options);
  }
  absl::StatusOr<v1::BenchmarkJob> CancelJob(const std::string& name, const CallOptions& options = {}) const {
    return connection_->CancelJob(name, options);
  }
  absl::StatusOr<std::vector<ReportFile>> GetReport(const std::string& name,
                                                    const std::vector<std::string>& file_names = {},
                                                    const CallOptions& options = {}) const {
    return connection_->GetReport(name, file_names, options);
  }

 private:
  std::shared_ptr<Connection> connection_;
};

}  // namespace keval

#endif  // KEVAL_CLIENT_H_
