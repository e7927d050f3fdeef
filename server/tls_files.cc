#include "server/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/file.h"
#include "base/text.h"

namespace keval::server {
namespace {

constexpr std::int64_t kMaxPemBytes = std::int64_t{1} << 20;

struct OpenSslFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename T>
using Owned = std::unique_ptr<T, OpenSslFree>;

absl::Status Refuse(absl::string_view flag, absl::string_view path, absl::string_view what) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", PrintableText(path, 512), ": ", what));
}

Owned<BIO> Open(const std::string& pem) {
  return Owned<BIO>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// Where a key is encrypted there is no passphrase; without this OpenSSL would ask the terminal.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return -1; }

// The first of `pem`'s certificates; null where there is none or one of them can't be read.
Owned<X509> FirstCertificate(const std::string& pem) {
  const Owned<BIO> bio = Open(pem);
  ERR_clear_error();
  Owned<X509> first(PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr));
  if (first == nullptr) return nullptr;
  while (Owned<X509>(PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr)) != nullptr) continue;
  return ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE ? std::move(first) : nullptr;
}

}  // namespace

absl::StatusOr<TlsMaterial> ReadTlsMaterial(const TlsPaths& paths) {
  TlsMaterial material;
  const auto read = [](absl::string_view flag, const std::string& path, bool secret,
                       std::string* contents) -> absl::Status {
    absl::StatusOr<std::string> text = secret ? ReadSecretFile(path, kMaxPemBytes) : ReadWholeFile(path, kMaxPemBytes);
    if (!text.ok()) return absl::InvalidArgumentError(absl::StrCat(flag, ": ", text.status().message()));
    // gRPC takes them as C strings.
    if (text->find('\0') != std::string::npos) return Refuse(flag, path, "is no PEM");
    *contents = *std::move(text);
    return absl::OkStatus();
  };
  absl::Status status = read("--tls_cert", paths.certificate, false, &material.certificate);
  if (status.ok()) status = read("--tls_key", paths.key, true, &material.key);
  if (status.ok() && !paths.client_ca.empty()) {
    status = read("--tls_client_ca", paths.client_ca, false, &material.client_ca);
  }
  if (!status.ok()) return status;

  const Owned<X509> certificate = FirstCertificate(material.certificate);
  if (certificate == nullptr) {
    return Refuse("--tls_cert", paths.certificate, "has no PEM certificate, or one that can't be read");
  }
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(Open(material.key).get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr) return Refuse("--tls_key", paths.key, "has no PEM private key that can be read (unencrypted)");
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return Refuse("--tls_key", paths.key, absl::StrCat("is not the key of ", PrintableText(paths.certificate, 512)));
  }
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0) {
    return Refuse("--tls_cert", paths.certificate, "has expired");
  }
  if (!paths.client_ca.empty() && FirstCertificate(material.client_ca) == nullptr) {
    return Refuse("--tls_client_ca", paths.client_ca, "has no PEM certificate, or one that can't be read");
  }
  ERR_clear_error();
  return material;
}

}  // namespace keval::server
