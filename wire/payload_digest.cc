#include "wire/payload_digest.h"

#include "base/sha256.h"

// The library's functions as inline ones: nothing to link, and the compiler vectorises the loops.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace keval::wire {

class PayloadDigest::Hash {
 public:
  virtual ~Hash() = default;
  virtual void Update(const void* data, std::size_t size) = 0;
  virtual v1::PayloadTrailer Finish() = 0;
};

class PayloadDigest::Sha256Hash final : public Hash {
 public:
  void Update(const void* data, std::size_t size) override { sha256_.Update(data, size); }
  v1::PayloadTrailer Finish() override {
    v1::PayloadTrailer trailer;
    trailer.set_sha256(sha256_.FinishBytes());
    return trailer;
  }

 private:
  Sha256 sha256_;
};

class PayloadDigest::Xxh3Hash final : public Hash {
 public:
  Xxh3Hash() { XXH3_128bits_reset(&state_); }
  void Update(const void* data, std::size_t size) override { XXH3_128bits_update(&state_, data, size); }
  v1::PayloadTrailer Finish() override {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_));
    v1::PayloadTrailer trailer;
    trailer.set_xxh3(&canonical, sizeof(canonical));
    return trailer;
  }

 private:
  XXH3_state_t state_;
};

std::unique_ptr<PayloadDigest::Hash> PayloadDigest::MakeHash(v1::PayloadDigest kind) {
  switch (kind) {
    case v1::PAYLOAD_DIGEST_XXH3:
      return std::make_unique<Xxh3Hash>();
    case v1::PAYLOAD_DIGEST_NONE:
      return nullptr;
    default:
      return std::make_unique<Sha256Hash>();
  }
}

PayloadDigest::PayloadDigest(v1::PayloadDigest kind) : hash_(MakeHash(kind)) {}
PayloadDigest::~PayloadDigest() = default;

void PayloadDigest::Update(const void* data, std::size_t size) {
  if (hash_ != nullptr) hash_->Update(data, size);
}

v1::PayloadTrailer PayloadDigest::Finish() { return hash_ != nullptr ? hash_->Finish() : v1::PayloadTrailer(); }

}  // namespace keval::wire
