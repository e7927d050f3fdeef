// Everything that serves, put together from options and a platform; main.cc adds the process around it.
#ifndef KEVAL_SERVER_KEVALD_H_
#define KEVAL_SERVER_KEVALD_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/linear_logp/engine.h"
#include "keval/v1/server_info.pb.h"
#include "server/benchmark_handler.h"
#include "server/byte_budget.h"
#include "server/contract_handler.h"
#include "server/device_lease.h"
#include "server/device_table.h"
#include "server/executor.h"
#include "server/gradient_backend.h"
#include "server/grpc/frontend.h"
#include "server/grpc/tls_identity.h"
#include "server/host_memory_pool.h"
#include "server/job_retention.h"
#include "server/job_runner.h"
#include "server/job_store.h"
#include "server/linear_logp_handler.h"
#include "server/options.h"
#include "server/principal.h"
#include "server/ready_file.h"
#include "server/server_info_handler.h"
#include "server/serving_state.h"
#include "server/session_handler.h"
#include "server/session_store.h"
#include "server/tensor_handler.h"
#include "server/tensor_store.h"

namespace keval::server {

// What the machine and the build offer: LibTorch's in the program, fakes in tests.
struct Platform {
  std::vector<linear_logp::DeviceDescription> devices;  // The first is the default.
  std::string device_note;                              // Shown with the first device.
  std::vector<linear_logp::VariantDescription> variants;
  v1::BuildInfo build;
  std::function<BackendFactory(const linear_logp::DeviceDescription&)> backends;
  std::function<std::unique_ptr<RoundCollector>()> collectors;
};

// Owner: main or a test, from one thread.
class Kevald {
 public:
  // Serves when it returns, over TCP by `tls` where it isn't null; both must outlive the object. INVALID_ARGUMENT,
  // FAILED_PRECONDITION or UNAVAILABLE with a line for the operator.
  static absl::StatusOr<std::unique_ptr<Kevald>> Start(const ServerOptions& options, const Platform& platform,
                                                       const PrincipalSource* principals, TlsIdentity* tls = nullptr);
  ~Kevald();
  Kevald(const Kevald&) = delete;
  Kevald& operator=(const Kevald&) = delete;

  const ServedAddresses& addresses() const { return frontend_->addresses(); }

  // From time to time: lets go of what has expired.
  void Tidy();

  // A device's sticky error: the process is to end, for its supervisor to start it again.
  bool device_lost() const { return state_->any_device_lost(); }

  // Refuses new calls, lets those that run finish within the grace, ends the others, stops. Idempotent.
  void Drain();

 private:
  struct Device {
    linear_logp::DeviceDescription description;
    std::string name;
    bool runs_gradients = false;
    bool runs_benchmarks = false;
    DeviceLease lease;
    std::unique_ptr<Executor> executor;  // Null where it runs no gradients.
  };

  Kevald(const ServerOptions& options, const Platform& platform);
  absl::Status ChooseDevices(const Platform& platform);
  absl::Status StartExecutors(const Platform& platform);
  void MakeHandlers(const Platform& platform, const v1::ServerInfo& info);
  absl::Status OpenJobs(const Platform& platform, const v1::ServerInfo& info);
  v1::ServerInfo FixedInfo(const Platform& platform) const;

  const ServerOptions options_;
  const std::vector<linear_logp::VariantDescription> variants_;
  bool drained_ = false;
  // In the order of construction; each uses only what stands before it.
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<ServingState> state_;
  std::unique_ptr<DeviceTable> device_table_;
  std::shared_ptr<HostMemoryPool> host_memory_;
  ByteBudget request_bytes_;
  TensorStore tensor_store_;
  SessionStore session_store_;
  std::unique_ptr<JobStore> job_store_;
  std::unique_ptr<JobRetention> job_retention_;
  std::unique_ptr<JobRunner> job_runner_;
  std::unique_ptr<BenchmarkHandler> benchmark_handler_;
  std::unique_ptr<LinearLogpHandler> linear_logp_handler_;
  std::unique_ptr<SessionHandler> session_handler_;
  std::unique_ptr<ContractHandler> contract_handler_;
  std::unique_ptr<TensorHandler> tensor_handler_;
  std::unique_ptr<ServerInfoHandler> server_info_handler_;
  std::unique_ptr<Frontend> frontend_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_KEVALD_H_
