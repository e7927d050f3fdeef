#include "server/token_table.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/sha256.h"

namespace keval::server {
namespace {

constexpr std::size_t kMaxPrincipalBytes = 128;
constexpr std::size_t kMinTokenBytes = 16;
constexpr std::size_t kMaxTokenBytes = 512;

bool IsPrincipal(absl::string_view text) {
  constexpr absl::string_view kMarks = "._@+-/";
  return !text.empty() && text.size() <= kMaxPrincipalBytes && std::all_of(text.begin(), text.end(), [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || kMarks.find(c) != absl::string_view::npos;
  });
}

bool IsToken(absl::string_view text) {
  return text.size() >= kMinTokenBytes && text.size() <= kMaxTokenBytes &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
}

}  // namespace

absl::StatusOr<TokenTable> TokenTable::Parse(absl::string_view text) {
  TokenTable table;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripSuffix(line, "\r");
    if (line.empty() || line.front() == '#') continue;
    const auto refuse = [&](absl::string_view what) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", what));
    };
    const std::size_t colon = line.find(':');
    if (colon == absl::string_view::npos) return refuse("must be principal:token");
    const absl::string_view principal = line.substr(0, colon);
    const absl::string_view token = line.substr(colon + 1);
    if (!IsPrincipal(principal)) {
      return refuse(absl::StrCat("a principal has letters, digits and . _ @ + - /, at most ", kMaxPrincipalBytes));
    }
    if (!IsToken(token)) {
      return refuse(absl::StrCat("a token has ", kMinTokenBytes, " to ", kMaxTokenBytes, " visible ASCII characters"));
    }
    Entry entry{Sha256Bytes(token), std::string(principal)};
    for (const Entry& other : table.entries_) {
      if (other.digest == entry.digest) return refuse("its token is on an earlier line too");
    }
    table.entries_.push_back(std::move(entry));
  }
  return table;
}

std::optional<std::string> TokenTable::PrincipalOf(absl::string_view token) const {
  const std::string digest = Sha256Bytes(token);
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    if (CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0) found = &entry;
  }
  if (found == nullptr) return std::nullopt;
  return found->principal;
}

}  // namespace keval::server
