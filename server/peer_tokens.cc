#include "server/peer_tokens.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/number.h"
#include "base/sha256.h"

namespace keval::server {
namespace {

constexpr absl::string_view kTokenPrefix = "keval-uid.";

}  // namespace

PeerTokens::PeerTokens(std::function<absl::Time()> now)
    : now_(std::move(now)), key_(absl::StrCat(RandomHex128(), RandomHex128())) {}

std::string PeerTokens::Mac(absl::string_view text) const {
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac{};
  unsigned int size = 0;
  HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()), reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), mac.data(), &size);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(mac.data()), size));
}

std::string PeerTokens::Issue(uid_t uid) const {
  const std::string claim = absl::StrCat(uid, ".", absl::ToUnixSeconds(now_() + kLifetime));
  return absl::StrCat(kTokenPrefix, claim, ".", Mac(claim));
}

std::optional<std::string> PeerTokens::PrincipalOf(absl::string_view token) const {
  absl::string_view rest = token;
  if (!absl::ConsumePrefix(&rest, kTokenPrefix)) return std::nullopt;
  const std::size_t last = rest.rfind('.');
  if (last == absl::string_view::npos) return std::nullopt;
  const absl::string_view claim = rest.substr(0, last);
  const absl::string_view offered = rest.substr(last + 1);
  const std::string mac = Mac(claim);
  if (offered.size() != mac.size() || CRYPTO_memcmp(offered.data(), mac.data(), mac.size()) != 0) return std::nullopt;
  // From here on the text is this object's own.
  const std::size_t dot = claim.find('.');
  const std::optional<std::int64_t> expiry = ParseInt64(claim.substr(dot + 1));
  if (!expiry.has_value() || now_() >= absl::FromUnixSeconds(*expiry)) return std::nullopt;
  return absl::StrCat(kUidPrefix, claim.substr(0, dot));
}

}  // namespace keval::server
