// Refusals that name what was wrong: an absl::Status whose payloads carry the field, the offending value and the limit,
// so that every entrance (gRPC, CLI, Python) can show them without parsing the message.
#ifndef KEVAL_BASE_FIELD_ERROR_H_
#define KEVAL_BASE_FIELD_ERROR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace keval {

struct FieldViolation {
  std::string field;  // In proto field names, e.g. "targets" or "primaries[2].vocab_size".
  std::string value;  // The offending value as text; may be empty.
  std::string limit;  // What would have been accepted, as text; may be empty.
};

// INVALID_ARGUMENT "field: value VALUE LIMIT-SENTENCE". `limit` reads after "must be", e.g. "in [0, 17)".
absl::Status InvalidField(absl::string_view field, absl::string_view value, absl::string_view limit);

// Attaches `violation` to an error of any code; returns it. Does nothing to an OK status.
absl::Status WithField(absl::Status status, const FieldViolation& violation);

// What WithField or InvalidField attached; nullopt where there is none.
std::optional<FieldViolation> GetFieldViolation(const absl::Status& status);

// RESOURCE_EXHAUSTED and UNAVAILABLE may say when to try again.
absl::Status WithRetryDelayMs(absl::Status status, std::int64_t delay_ms);
std::optional<std::int64_t> GetRetryDelayMs(const absl::Status& status);

}  // namespace keval

#endif  // KEVAL_BASE_FIELD_ERROR_H_
