// SHA-256 over OpenSSL, incremental.
#ifndef KEVAL_BASE_SHA256_H_
#define KEVAL_BASE_SHA256_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace keval {

// Not thread-safe. Update any number of times, then call one of the Finish functions once.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(const void* data, std::size_t size);
  std::string FinishBytes();  // 32 bytes.
  std::string FinishHex();    // 64 lower-case hexadecimal digits.

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string Sha256Hex(absl::string_view data);
std::string Sha256Bytes(absl::string_view data);

// 32 lower-case hexadecimal digits from the system's generator: an unguessable handle.
std::string RandomHex128();

}  // namespace keval

#endif  // KEVAL_BASE_SHA256_H_
