#include "base/sha256.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <array>
#include <cstdlib>

#include "absl/strings/escaping.h"

namespace keval {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) { EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr); }

Sha256::~Sha256() = default;

void Sha256::Update(const void* data, std::size_t size) { EVP_DigestUpdate(state_->context, data, size); }

std::string Sha256::FinishBytes() {
  std::string digest(32, '\0');
  EVP_DigestFinal_ex(state_->context, reinterpret_cast<unsigned char*>(digest.data()), nullptr);
  return digest;
}

std::string Sha256::FinishHex() { return absl::BytesToHexString(FinishBytes()); }

std::string Sha256Bytes(absl::string_view data) {
  Sha256 hash;
  hash.Update(data.data(), data.size());
  return hash.FinishBytes();
}

std::string Sha256Hex(absl::string_view data) { return absl::BytesToHexString(Sha256Bytes(data)); }

std::string RandomHex128() {
  std::string bytes(16, '\0');
  // A host without entropy cannot make unguessable names: no caller could go on safely.
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), 16) != 1) std::abort();
  return absl::BytesToHexString(bytes);
}

}  // namespace keval
