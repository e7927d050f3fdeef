#include "server/caller_security.h"

#include <spdlog/spdlog.h>

#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/text.h"

namespace keval::server {
namespace {

constexpr std::int64_t kMaxTokenFileBytes = std::int64_t{1} << 20;
constexpr std::size_t kMaxCertificateNameBytes = 256;
constexpr absl::string_view kScheme = "bearer ";

// The token of an "authorization" value; nullopt where it is of another scheme.
std::optional<absl::string_view> BearerToken(absl::string_view value) {
  if (!absl::StartsWithIgnoreCase(value, kScheme)) return std::nullopt;
  return value.substr(kScheme.size());
}

absl::StatusOr<std::string> CertifiedPrincipal(const std::string& name) {
  // Users of this machine are not the CA's to name.
  const bool usable = name.size() <= kMaxCertificateNameBytes && PrintableText(name) == name &&
                      !absl::StartsWithIgnoreCase(name, kUidPrefix);
  if (!usable) return absl::UnauthenticatedError("the name in the client certificate can't be a principal's");
  return name;
}

}  // namespace

CallerSecurity::CallerSecurity(const ServerOptions& options)
    : token_file_(options.token_file),
      tls_paths_{options.tls_cert, options.tls_key, options.tls_client_ca},
      anonymous_(!options.AuthenticatesCallers()) {}

absl::StatusOr<std::unique_ptr<CallerSecurity>> CallerSecurity::Open(const ServerOptions& options) {
  auto security = absl::WrapUnique(new CallerSecurity(options));
  if (!options.token_file.empty()) {
    if (absl::Status status = security->ReadTokens(); !status.ok()) return status;
    const MutexLock lock(&security->mutex_);
    if (security->tokens_->empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--token_file: ", PrintableText(options.token_file, 512), ": no token is in it"));
    }
  }
  if (!options.tls_cert.empty()) {
    absl::StatusOr<TlsMaterial> material = ReadTlsMaterial(security->tls_paths_);
    if (!material.ok()) return material.status();
    security->tls_material_ = *material;
    TlsIdentity::ClientCertificate clients = TlsIdentity::ClientCertificate::kNone;
    if (!options.tls_client_ca.empty()) {
      // A caller with a token needs no certificate.
      clients = options.token_file.empty() ? TlsIdentity::ClientCertificate::kRequired
                                           : TlsIdentity::ClientCertificate::kOptional;
    }
    security->tls_ = std::make_unique<TlsIdentity>(*std::move(material), clients);
  }
  if (options.unix_principals) {
    if (absl::Status status = security->StartSockets(options); !status.ok()) return status;
  }
  return security;
}

absl::Status CallerSecurity::StartSockets(const ServerOptions& options) {
  peer_tokens_ = std::make_unique<PeerTokens>();
  const auto start = [this](absl::string_view flag, const ListenAddress& address) -> absl::Status {
    if (!address.is_unix()) return absl::OkStatus();
    absl::StatusOr<std::unique_ptr<PeerTokenSocket>> socket = PeerTokenSocket::Start(flag, address, peer_tokens_.get());
    if (!socket.ok()) return socket.status();
    sockets_.push_back(*std::move(socket));
    return absl::OkStatus();
  };
  for (const ListenAddress& address : options.listen) {
    if (absl::Status status = start("--listen", address); !status.ok()) return status;
  }
  return options.bulk_listen.has_value() ? start("--bulk_listen", *options.bulk_listen) : absl::OkStatus();
}

absl::Status CallerSecurity::ReadTokens() {
  absl::StatusOr<std::string> text = ReadSecretFile(token_file_, kMaxTokenFileBytes);
  if (!text.ok()) return absl::InvalidArgumentError(absl::StrCat("--token_file: ", text.status().message()));
  const std::string digest = Sha256Bytes(*text);
  if (digest == tokens_seen_.digest) return absl::OkStatus();
  absl::StatusOr<TokenTable> table = TokenTable::Parse(*text);
  if (!table.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--token_file: ", PrintableText(token_file_, 512), ": ", table.status().message()));
  }
  tokens_seen_.digest = digest;
  const MutexLock lock(&mutex_);
  tokens_ = std::make_shared<const TokenTable>(*std::move(table));
  return absl::OkStatus();
}

absl::StatusOr<std::string> CallerSecurity::Identify(const Caller& caller) const {
  if (anonymous_) return std::string("anonymous");
  const auto [first, last] = caller.metadata.equal_range("authorization");
  if (first == last) {
    if (!caller.certificate_name.empty()) return CertifiedPrincipal(caller.certificate_name);
    return absl::UnauthenticatedError("the call shows no token and no certificate that names its caller");
  }
  if (std::next(first) != last) return absl::UnauthenticatedError("the call shows several tokens");
  const std::optional<absl::string_view> token = BearerToken(first->second);
  if (!token.has_value()) return absl::UnauthenticatedError("the call's authorization is no bearer token");
  std::shared_ptr<const TokenTable> tokens;
  {
    const MutexLock lock(&mutex_);
    tokens = tokens_;
  }
  std::optional<std::string> principal;
  if (tokens != nullptr) principal = tokens->PrincipalOf(*token);
  if (!principal.has_value() && peer_tokens_ != nullptr) principal = peer_tokens_->PrincipalOf(*token);
  if (!principal.has_value()) return absl::UnauthenticatedError("the call's token is unknown or has expired");
  return *std::move(principal);
}

void CallerSecurity::Tell(const absl::Status& status, Seen* seen) {
  const std::string error(status.message());
  // A second time: files that belong together may be replaced one after the other.
  const bool again = !error.empty() && error == seen->error;
  if (again && !seen->told) spdlog::error("{}: what was read before stays in use", error);
  seen->told = again;
  seen->error = error;
}

void CallerSecurity::Refresh() {
  if (!token_file_.empty()) {
    const std::string before = tokens_seen_.digest;
    Tell(ReadTokens(), &tokens_seen_);
    if (tokens_seen_.digest != before) spdlog::info("--token_file: changed, and read again");
  }
  if (tls_ != nullptr) {
    absl::StatusOr<TlsMaterial> material = ReadTlsMaterial(tls_paths_);
    Tell(material.status(), &tls_seen_);
    if (material.ok() && !(*material == tls_material_)) {
      tls_material_ = *material;
      tls_->Replace(*std::move(material));
      spdlog::info("--tls_cert: changed, and read again");
    }
  }
}

}  // namespace keval::server
