#include "server/grpc/frontend.h"

#include <grpc/impl/codegen/grpc_types.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>

#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "server/grpc/benchmark_service.h"
#include "server/grpc/health_service.h"
#include "server/grpc/services.h"
#include "server/tensor_frames.h"

namespace keval::server {
namespace {

constexpr int kMaxStreamsPerConnection = 256;
constexpr int kKeepaliveMs = 20000;
constexpr int kKeepaliveTimeoutMs = 10000;
constexpr int kLeastPingIntervalMs = 5000;
constexpr int kIdleConnectionMs = 30 * 60 * 1000;
constexpr int kBulkLookaheadBytes = 4 << 20;
constexpr int kHealthThreads = 80;  // HealthService::kMaxWatches and some more.

void SetCommonArguments(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
  // Two servers on one port would take turns at answering.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  // A client that vanished is noticed, and its memory freed, within the two together.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kLeastPingIntervalMs);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleConnectionMs);
}

}  // namespace

Frontend::Frontend(const FrontendOptions& options, const Handlers& handlers, ServingState* state,
                   const PrincipalSource* principals, TlsIdentity* tls)
    : options_(options),
      handlers_(handlers),
      state_(state),
      tls_(tls),
      stalls_(options.stall_timeout),
      calls_(principals, state, &stalls_, options.max_threads / 2) {}

Frontend::~Frontend() { Shutdown(std::chrono::milliseconds(0)); }

absl::StatusOr<std::unique_ptr<Frontend>> Frontend::Start(const FrontendOptions& options, const Handlers& handlers,
                                                          ServingState* state, const PrincipalSource* principals,
                                                          TlsIdentity* tls) {
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();  // Does nothing the second time.
  auto frontend = absl::WrapUnique(new Frontend(options, handlers, state, principals, tls));
  absl::StatusOr<std::unique_ptr<Listener>> control = frontend->Listen(Kind::kControl, "--listen", options.listen);
  if (!control.ok()) return control.status();
  frontend->addresses_.control = (*control)->addresses;
  frontend->listeners_.push_back(*std::move(control));
  if (options.bulk_listen.has_value()) {
    absl::StatusOr<std::unique_ptr<Listener>> bulk =
        frontend->Listen(Kind::kBulk, "--bulk_listen", {*options.bulk_listen});
    if (!bulk.ok()) return bulk.status();
    frontend->addresses_.bulk = (*bulk)->addresses.front();
    if (!options.bulk_listen->is_unix()) frontend->bulk_port_ = (*bulk)->port;
    frontend->listeners_.push_back(*std::move(bulk));
  }
  if (options.health_listen.has_value()) {
    absl::StatusOr<std::unique_ptr<Listener>> health =
        frontend->Listen(Kind::kHealth, "--health_listen", {*options.health_listen});
    if (!health.ok()) return health.status();
    frontend->addresses_.health = (*health)->addresses.front();
    frontend->listeners_.push_back(*std::move(health));
  }
  return frontend;
}

absl::StatusOr<std::unique_ptr<Frontend::Listener>> Frontend::Listen(Kind kind, const char* flag,
                                                                     const std::vector<ListenAddress>& addresses) {
  auto listener = std::make_unique<Listener>();
  grpc::ServerBuilder builder;
  SetCommonArguments(&builder);
  if (kind == Kind::kBulk) {
    // Doubles the latency of small calls: hence a listener of its own.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kBulkLookaheadBytes);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  }
  grpc::ResourceQuota quota(flag);
  quota.SetMaxThreads(kind == Kind::kHealth ? kHealthThreads : options_.max_threads);
  builder.SetResourceQuota(quota);

  std::vector<int> ports(addresses.size(), 0);
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (absl::Status status = PrepareToListen(flag, addresses[i]); !status.ok()) return status;
    const bool encrypted = tls_ != nullptr && kind != Kind::kHealth && !addresses[i].is_unix();
    builder.AddListeningPort(addresses[i].Text(),
                             encrypted ? tls_->NewCredentials() : grpc::InsecureServerCredentials(), &ports[i]);
  }
  listener->services.push_back(std::make_unique<HealthService>(state_));
  if (kind != Kind::kHealth) {
    listener->services.push_back(
        std::make_unique<LinearLogpService>(&calls_, handlers_.linear_logp, handlers_.sessions, handlers_.contract));
    listener->services.push_back(std::make_unique<TensorService>(&calls_, handlers_.tensors));
    listener->services.push_back(std::make_unique<ServerInfoService>(&calls_, handlers_.server_info));
    listener->services.push_back(std::make_unique<BenchmarkService>(&calls_, handlers_.benchmark));
  }
  for (const std::unique_ptr<grpc::Service>& service : listener->services) builder.RegisterService(service.get());
  listener->server = builder.BuildAndStart();
  // gRPC binds them in their order and gives up at the first that fails, whose port stays 0.
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (ports[i] == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(flag, ": cannot listen on ", PrintableText(addresses[i].Text())));
    }
    listener->addresses.push_back(addresses[i].Text(ports[i]));
  }
  if (listener->server == nullptr) return absl::FailedPreconditionError(absl::StrCat(flag, ": gRPC starts no server"));
  listener->port = ports.front();
  return listener;
}

void Frontend::Shutdown(std::chrono::milliseconds grace) {
  const auto deadline = std::chrono::system_clock::now() + grace;
  for (const std::unique_ptr<Listener>& listener : listeners_) listener->server->Shutdown(deadline);
  for (const std::unique_ptr<Listener>& listener : listeners_) listener->server->Wait();
  listeners_.clear();
}

}  // namespace keval::server
