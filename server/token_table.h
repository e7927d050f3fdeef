// Bearer tokens and the principals that they stand for.
#ifndef KEVAL_SERVER_TOKEN_TABLE_H_
#define KEVAL_SERVER_TOKEN_TABLE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace keval::server {

// A value; keeps digests, not the tokens themselves.
class TokenTable {
 public:
  // Lines "principal:token"; empty ones and those that begin with # are left out. A principal has letters, digits and
  // . _ @ + - /, at most 128; a token 16 to 512 visible ASCII characters. A principal may have several tokens, so that
  // they can be changed one after the other; a token stands for one principal. INVALID_ARGUMENT naming the line, and
  // never showing what is in it.
  static absl::StatusOr<TokenTable> Parse(absl::string_view text);

  // Compared with every token, and in a time that doesn't depend on what is alike.
  std::optional<std::string> PrincipalOf(absl::string_view token) const;

  bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    std::string digest;  // SHA-256 of the token.
    std::string principal;
  };
  std::vector<Entry> entries_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_TOKEN_TABLE_H_
