#include "server/request_fields.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/field_error.h"

namespace keval::server {
namespace {

constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;

}  // namespace

absl::StatusOr<absl::Duration> ParseLease(std::int64_t lease_ms) {
  if (lease_ms < 0) return InvalidField("lease_ms", absl::StrCat(lease_ms), "at least 0");
  return absl::Milliseconds(lease_ms);
}

absl::StatusOr<int> ParsePageSize(std::int32_t page_size) {
  if (page_size == 0) return kDefaultPageSize;
  if (page_size >= 1 && page_size <= kMaxPageSize) return page_size;
  return InvalidField("page_size", absl::StrCat(page_size), absl::StrCat("in [0, ", kMaxPageSize, "]"));
}

absl::Status BadPageToken(absl::string_view token) {
  return InvalidField("page_token", token, "empty or a next_page_token of an earlier answer");
}

bool IsHexName(absl::string_view text, absl::string_view prefix, std::size_t digits) {
  return absl::ConsumePrefix(&text, prefix) && text.size() == digits &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); });
}

}  // namespace keval::server
