// JSON text read strictly: one document, no key twice in an object.
#ifndef KEVAL_CORE_VERDICT_STRICT_JSON_H_
#define KEVAL_CORE_VERDICT_STRICT_JSON_H_

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace keval::verdict {

// INVALID_ARGUMENT, beginning with `what`, for text that isn't JSON (with the place), holds a number that overflows, is
// nested deeper than 64 levels, or gives a key of an object twice (naming it).
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view what, absl::string_view text);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_STRICT_JSON_H_
