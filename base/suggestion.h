// What somebody probably meant by a word that isn't known.
#ifndef KEVAL_BASE_SUGGESTION_H_
#define KEVAL_BASE_SUGGESTION_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace keval {

// "; did you mean NAME?" for the word of `known` that is nearest to `given`, if one is near enough to be a slip of the
// pen; else nothing. To stand behind a refusal's limit. The words of `known` must be printable.
std::string Suggestion(absl::string_view given, const std::vector<std::string>& known);

}  // namespace keval

#endif  // KEVAL_BASE_SUGGESTION_H_
