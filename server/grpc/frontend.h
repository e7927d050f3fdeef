// The listeners of one server process.
#ifndef KEVAL_SERVER_GRPC_FRONTEND_H_
#define KEVAL_SERVER_GRPC_FRONTEND_H_

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/benchmark_handler.h"
#include "server/contract_handler.h"
#include "server/grpc/call.h"
#include "server/grpc/tls_identity.h"
#include "server/linear_logp_handler.h"
#include "server/listen_address.h"
#include "server/principal.h"
#include "server/ready_file.h"
#include "server/server_info_handler.h"
#include "server/serving_state.h"
#include "server/session_handler.h"
#include "server/tensor_handler.h"

namespace keval::server {

// Above the largest unary payload, so that a somewhat larger one gets a refusal that names bytes and limit.
inline constexpr int kMaxMessageBytes = 16 << 20;

struct FrontendOptions {
  std::vector<ListenAddress> listen;
  std::optional<ListenAddress> bulk_listen;
  std::optional<ListenAddress> health_listen;
  int max_threads = 256;
  std::chrono::milliseconds stall_timeout{60000};
};

struct Handlers {
  LinearLogpHandler* linear_logp = nullptr;
  SessionHandler* sessions = nullptr;
  ContractHandler* contract = nullptr;
  TensorHandler* tensors = nullptr;
  ServerInfoHandler* server_info = nullptr;
  BenchmarkHandler* benchmark = nullptr;
};

// Control and bulk listeners serve every service; the health listener health alone, on threads of its own, so that it
// answers when the others are busy. With `tls`, control and bulk over TCP are TLS; Unix sockets and health never are.
// Thread-compatible; owns nothing it is given, all of which must outlive it.
class Frontend {
 public:
  // FAILED_PRECONDITION naming the flag and the address that can't be listened on.
  static absl::StatusOr<std::unique_ptr<Frontend>> Start(const FrontendOptions& options, const Handlers& handlers,
                                                         ServingState* state, const PrincipalSource* principals,
                                                         TlsIdentity* tls);
  ~Frontend();  // Shuts down at once.
  Frontend(const Frontend&) = delete;
  Frontend& operator=(const Frontend&) = delete;

  const ServedAddresses& addresses() const { return addresses_; }
  int bulk_port() const { return bulk_port_; }

  // Stops listening; calls that still run after `grace` are cancelled. Idempotent.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  // A grpc::Server and the services that it must not outlive.
  struct Listener {
    std::vector<std::unique_ptr<grpc::Service>> services;
    std::unique_ptr<grpc::Server> server;
    std::vector<std::string> addresses;
    int port = 0;  // Of the first address.
  };
  enum class Kind : std::uint8_t { kControl, kBulk, kHealth };

  Frontend(const FrontendOptions& options, const Handlers& handlers, ServingState* state,
           const PrincipalSource* principals, TlsIdentity* tls);
  absl::StatusOr<std::unique_ptr<Listener>> Listen(Kind kind, const char* flag,
                                                   const std::vector<ListenAddress>& addresses);

  const FrontendOptions options_;
  const Handlers handlers_;
  ServingState* const state_;
  TlsIdentity* const tls_;  // Null: plaintext.
  StallWatch stalls_;
  const CallRunner calls_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  ServedAddresses addresses_;
  int bulk_port_ = 0;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_GRPC_FRONTEND_H_
