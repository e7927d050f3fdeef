#include "core/measure/wrong_result.h"

#include <array>
#include <cstddef>
#include <string>

#include "absl/strings/cord.h"

namespace keval::measure {
namespace {

constexpr absl::string_view kKindUrl = "keval/wrong_result";

// In the enumeration's order.
constexpr std::array<absl::string_view, 10> kNames = {
    "WRONG_RESULT", "CACHED_RESULT",     "INPUTS_CHANGED",  "LOW_PRECISION",     "NOT_REPEATABLE",
    "NOT_WRITTEN",  "PRECISION_CHANGED", "RECYCLED_MEMORY", "TIMED_DIFFERENTLY", "UNFINISHED_WORK"};

}  // namespace

absl::string_view WrongResultName(WrongResult kind) { return kNames[static_cast<std::size_t>(kind)]; }

absl::Status WrongResultError(WrongResult kind, absl::string_view text) {
  absl::Status status = absl::DataLossError(text);
  status.SetPayload(kKindUrl, absl::Cord(WrongResultName(kind)));
  return status;
}

absl::string_view WrongResultNameOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kKindUrl);
  if (payload.has_value()) {
    for (const absl::string_view name : kNames) {
      if (*payload == name) {
        return name;
      }
    }
  }
  return WrongResultName(WrongResult::kOther);
}

}  // namespace keval::measure
