// What the server shows in TLS handshakes, replaceable while it serves.
#ifndef KEVAL_SERVER_GRPC_TLS_IDENTITY_H_
#define KEVAL_SERVER_GRPC_TLS_IDENTITY_H_

#include <grpc/grpc_security.h>
#include <grpcpp/security/server_credentials.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "server/tls_files.h"

namespace keval::server {

// gRPC's FileWatcherCertificateProvider reads certificate and key at different moments and refuses every handshake
// while they don't match; here a pair that was checked replaces the one before it, whole. Connections that stand keep
// theirs. Thread-safe; must outlive the servers that its credentials are given to.
class TlsIdentity {
 public:
  enum class ClientCertificate : std::uint8_t { kNone, kOptional, kRequired };  // One that is sent is verified always.

  TlsIdentity(TlsMaterial material, ClientCertificate clients) : clients_(clients), material_(std::move(material)) {}

  // For handshakes that begin from now on.
  void Replace(TlsMaterial material);

  // For one listening port: each follows replacements by itself.
  std::shared_ptr<grpc::ServerCredentials> NewCredentials();

 private:
  // What gRPC hands back with each handshake of a port.
  struct Port {
    TlsIdentity* identity = nullptr;
    std::int64_t seen = 0;  // The generation that gRPC has. gRPC asks under a lock of the port's.
  };
  static grpc_ssl_certificate_config_reload_status Fetch(void* port, grpc_ssl_server_certificate_config** config);

  const ClientCertificate clients_;
  Mutex mutex_;
  TlsMaterial material_ ABSL_GUARDED_BY(mutex_);
  std::int64_t generation_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<std::unique_ptr<Port>> ports_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_GRPC_TLS_IDENTITY_H_
