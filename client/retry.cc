#include "client/retry.h"

#include <optional>

namespace keval {

std::optional<absl::Duration> DelayBeforeRetry(const absl::Status& status, Repeatable repeatable, Backoff& backoff) {
  const bool unavailable = absl::IsUnavailable(status);
  if (!unavailable && !absl::IsResourceExhausted(status)) return std::nullopt;
  // A delay comes from the server alone, which refused before it did anything.
  const auto said = GetRetryDelayMs(status);
  if (!said && (!unavailable || repeatable == Repeatable::kNo)) return std::nullopt;
  const absl::Duration own = backoff.Next();
  return said ? std::max(own, absl::Milliseconds(*said)) : own;
}

}  // namespace keval
