#include "server/grpc/tls_identity.h"

#include <grpc/grpc.h>
#include <grpcpp/version_info.h>

#include <string>
#include <utility>

namespace keval::server {
namespace {

// The C++ interface has no credentials whose certificates are fetched; the C one has.
class FetchedCredentials final : public grpc::ServerCredentials {
 public:
#if GRPC_CPP_VERSION_MAJOR > 1 || GRPC_CPP_VERSION_MINOR >= 57
  explicit FetchedCredentials(grpc_server_credentials* owned) : grpc::ServerCredentials(owned) {}
#else
  explicit FetchedCredentials(grpc_server_credentials* owned) : owned_(owned) {}
  ~FetchedCredentials() override { grpc_server_credentials_release(owned_); }
  FetchedCredentials(const FetchedCredentials&) = delete;
  FetchedCredentials& operator=(const FetchedCredentials&) = delete;
  // Callers are identified for each call: CallRunner.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), owned_);
  }

  grpc_server_credentials* const owned_;
#endif
};

grpc_ssl_client_certificate_request_type RequestType(TlsIdentity::ClientCertificate clients) {
  switch (clients) {
    case TlsIdentity::ClientCertificate::kNone:
      return GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    case TlsIdentity::ClientCertificate::kOptional:
      return GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
    case TlsIdentity::ClientCertificate::kRequired:
      break;
  }
  return GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
}

}  // namespace

void TlsIdentity::Replace(TlsMaterial material) {
  const MutexLock lock(&mutex_);
  material_ = std::move(material);
  ++generation_;
}

std::shared_ptr<grpc::ServerCredentials> TlsIdentity::NewCredentials() {
  auto port = std::make_unique<Port>();
  port->identity = this;
  grpc_ssl_server_credentials_options* const options = grpc_ssl_server_credentials_create_options_using_config_fetcher(
      RequestType(clients_), &TlsIdentity::Fetch, port.get());
  {
    const MutexLock lock(&mutex_);
    ports_.push_back(std::move(port));
  }
  return std::make_shared<FetchedCredentials>(grpc_ssl_server_credentials_create_with_options(options));
}

grpc_ssl_certificate_config_reload_status TlsIdentity::Fetch(void* port, grpc_ssl_server_certificate_config** config) {
  Port* const asking = static_cast<Port*>(port);
  TlsIdentity* const identity = asking->identity;
  const MutexLock lock(&identity->mutex_);
  if (asking->seen == identity->generation_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const TlsMaterial& material = identity->material_;
  const grpc_ssl_pem_key_cert_pair pair = {material.key.c_str(), material.certificate.c_str()};
  // gRPC 1.51 ends the process where there are no roots, also where no certificate is asked for; these are then unused.
  const std::string& roots = material.client_ca.empty() ? material.certificate : material.client_ca;
  *config = grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
  asking->seen = identity->generation_;
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

}  // namespace keval::server
