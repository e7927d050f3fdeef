#include "keval/client.h"

#include "base/field_error.h"

namespace keval {

absl::StatusOr<Client> Client::Connect(const std::string& server) {
  ConnectionOptions options;
  options.server = server;
  return Connect(std::move(options));
}

absl::StatusOr<Client> Client::Connect(ConnectionOptions options) {
  auto connection = MakeConnection(std::move(options));
  if (!connection.ok()) return connection.status();
  return Client(*std::move(connection));
}

absl::StatusOr<GradientResult> Client::Gradient(const GradientParams& params, const CallOptions& options) const {
  if (!params.grad_logp.given()) return InvalidField("grad_logp", "what is left out", "given (or call Forward)");
  return connection_->Gradient(params, options);
}

absl::StatusOr<GradientResult> Client::Forward(GradientParams params, const CallOptions& options) const {
  params.grad_logp = Operand();
  params.want.clear();
  return connection_->Gradient(params, options);
}

}  // namespace keval
