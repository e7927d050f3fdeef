#include "wire/payload_digest.h"

#include <string>

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "base/sha256.h"

namespace keval::wire {
namespace {

v1::PayloadTrailer DigestOf(v1::PayloadDigest kind, const std::string& data, std::size_t piece) {
  PayloadDigest digest(kind);
  for (std::size_t at = 0; at < data.size(); at += piece) {
    const std::string part = data.substr(at, piece);
    digest.Update(part.data(), part.size());
  }
  return digest.Finish();
}

// From the algorithm's published test values: XXH3-128, seed 0.
TEST(PayloadDigestTest, Xxh3OfNothingIsThePublishedOne) {
  EXPECT_EQ(absl::BytesToHexString(DigestOf(v1::PAYLOAD_DIGEST_XXH3, "", 1).xxh3()),
            "99aa06d3014798d86001c324468d497f");
}

TEST(PayloadDigestTest, PiecesDoNotMatter) {
  std::string data(100000, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7);
  const v1::PayloadTrailer whole = DigestOf(v1::PAYLOAD_DIGEST_XXH3, data, data.size());
  EXPECT_EQ(whole.xxh3().size(), 16U);
  EXPECT_TRUE(whole.sha256().empty());
  EXPECT_EQ(DigestOf(v1::PAYLOAD_DIGEST_XXH3, data, 333).xxh3(), whole.xxh3());
  data[50000] ^= 1;
  EXPECT_NE(DigestOf(v1::PAYLOAD_DIGEST_XXH3, data, 333).xxh3(), whole.xxh3());
}

TEST(PayloadDigestTest, UnspecifiedIsSha256AndNoneIsNothing) {
  for (const auto kind :
       {v1::PAYLOAD_DIGEST_UNSPECIFIED, v1::PAYLOAD_DIGEST_SHA256, static_cast<v1::PayloadDigest>(99)}) {
    const v1::PayloadTrailer trailer = DigestOf(kind, "abc", 2);
    EXPECT_EQ(trailer.sha256(), Sha256Bytes("abc"));
    EXPECT_TRUE(trailer.xxh3().empty());
  }
  EXPECT_EQ(DigestOf(v1::PAYLOAD_DIGEST_NONE, "abc", 2).ByteSizeLong(), 0U);
}

}  // namespace
}  // namespace keval::wire
