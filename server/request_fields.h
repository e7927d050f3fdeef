// Plain fields that several requests have.
#ifndef KEVAL_SERVER_REQUEST_FIELDS_H_
#define KEVAL_SERVER_REQUEST_FIELDS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace keval::server {

// INVALID_ARGUMENT (field "lease_ms") for a negative one.
absl::StatusOr<absl::Duration> ParseLease(std::int64_t lease_ms);

// Of a list: 0 is 100. INVALID_ARGUMENT (field "page_size") outside [0, 1000].
absl::StatusOr<int> ParsePageSize(std::int32_t page_size);

// INVALID_ARGUMENT (field "page_token").
absl::Status BadPageToken(absl::string_view token);

// `prefix` and then `digits` hexadecimal digits: what a handle or a name looks like.
bool IsHexName(absl::string_view text, absl::string_view prefix, std::size_t digits);

}  // namespace keval::server

#endif  // KEVAL_SERVER_REQUEST_FIELDS_H_
