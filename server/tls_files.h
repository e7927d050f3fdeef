// The server's certificate, key and client CA, read from files and checked against each other.
#ifndef KEVAL_SERVER_TLS_FILES_H_
#define KEVAL_SERVER_TLS_FILES_H_

#include <string>

#include "absl/status/statusor.h"

namespace keval::server {

struct TlsPaths {
  std::string certificate;  // PEM, the server's own first, then what leads to its root.
  std::string key;          // PEM, not encrypted.
  std::string client_ca;    // PEM; empty: no certificate is asked of clients.
};

// The files' contents.
struct TlsMaterial {
  std::string certificate;
  std::string key;
  std::string client_ca;

  friend bool operator==(const TlsMaterial&, const TlsMaterial&) = default;
};

// INVALID_ARGUMENT naming the flag, the file and what is wrong: it can't be read or has no PEM of its kind, the key is
// another certificate's or open to everybody, the certificate has expired. Never shows what is in them.
absl::StatusOr<TlsMaterial> ReadTlsMaterial(const TlsPaths& paths);

}  // namespace keval::server

#endif  // KEVAL_SERVER_TLS_FILES_H_
