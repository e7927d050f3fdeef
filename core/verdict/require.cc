#include "core/verdict/require.h"

namespace keval::verdict {
namespace {

bool IsMet(absl::string_view verdict, absl::string_view reason, bool non_inferior, Require require) {
  switch (require) {
    case Require::kImproved:
      return verdict == "IMPROVED";
    case Require::kEquivalent:
      return verdict == "EQUIVALENT";
    case Require::kNoRegression:
      return verdict == "IMPROVED" || verdict == "EQUIVALENT" ||
             (verdict == "INCONCLUSIVE" && reason == "BUDGET" && non_inferior);
    case Require::kAny:
      return verdict == "IMPROVED" || verdict == "EQUIVALENT" || verdict == "REGRESSED" || verdict == "INCONCLUSIVE";
  }
  return false;
}

}  // namespace

std::optional<Require> ParseRequire(absl::string_view text) {
  if (text == "improved") return Require::kImproved;
  if (text == "equivalent") return Require::kEquivalent;
  if (text == "no-regression") return Require::kNoRegression;
  if (text == "any") return Require::kAny;
  return std::nullopt;
}

int ExitCode(absl::string_view verdict, absl::string_view reason, absl::string_view failure_cause, bool non_inferior,
             Require require) {
  if (verdict == "CONTRACT_FAILED") return 4;
  if (verdict == "FAILED") return failure_cause == "base" || failure_cause == "candidate" ? 5 : 6;
  if (IsMet(verdict, reason, non_inferior, require)) return 0;
  return verdict == "REGRESSED" ? 1 : 3;
}

}  // namespace keval::verdict
