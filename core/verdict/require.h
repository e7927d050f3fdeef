// What a caller requires of a verdict, and the exit code that tells whether it was met.
#ifndef KEVAL_CORE_VERDICT_REQUIRE_H_
#define KEVAL_CORE_VERDICT_REQUIRE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace keval::verdict {

enum class Require : std::uint8_t { kImproved, kEquivalent, kNoRegression, kAny };

// "improved", "equivalent", "no-regression" or "any"; nullopt for other text.
std::optional<Require> ParseRequire(absl::string_view text);

// 0 met; 1 REGRESSED; 3 not met; 4 CONTRACT_FAILED; 5 FAILED by an arm (`failure_cause` base or candidate); 6 FAILED by
// harness, device or infrastructure. `any` is met by every verdict but the last three; `no-regression` by IMPROVED,
// EQUIVALENT and INCONCLUSIVE(BUDGET) with `non_inferior`.
int ExitCode(absl::string_view verdict, absl::string_view reason, absl::string_view failure_cause, bool non_inferior,
             Require require);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_REQUIRE_H_
