// What a payload is verified by: SHA-256, or XXH3 where both sides know it.
#ifndef KEVAL_WIRE_PAYLOAD_DIGEST_H_
#define KEVAL_WIRE_PAYLOAD_DIGEST_H_

#include <cstddef>
#include <memory>
#include <string>

#include "keval/v1/tensor.pb.h"

namespace keval::wire {

// Incremental. Not thread-safe.
class PayloadDigest {
 public:
  // UNSPECIFIED, and a value that this version doesn't know, is SHA256. NONE computes nothing.
  explicit PayloadDigest(v1::PayloadDigest kind);
  ~PayloadDigest();
  PayloadDigest(const PayloadDigest&) = delete;
  PayloadDigest& operator=(const PayloadDigest&) = delete;

  void Update(const void* data, std::size_t size);

  // Of what Update has been given: in the field of its kind, the other one empty. Call it once.
  v1::PayloadTrailer Finish();

 private:
  class Hash;
  class Sha256Hash;
  class Xxh3Hash;
  const std::unique_ptr<Hash> hash_;  // Null: none.

  static std::unique_ptr<Hash> MakeHash(v1::PayloadDigest kind);
};

}  // namespace keval::wire

#endif  // KEVAL_WIRE_PAYLOAD_DIGEST_H_
