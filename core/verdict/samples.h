// The samples file: what a job measured, one timed repetition a row.
#ifndef KEVAL_CORE_VERDICT_SAMPLES_H_
#define KEVAL_CORE_VERDICT_SAMPLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace keval::verdict {

enum class Role : std::uint8_t { kPrimary, kGuard, kControl };

// One timed repetition. Arm A is base; B the candidate, in a control series the copy of base.
struct Sample {
  std::string series;
  Role role = Role::kPrimary;
  int round = 0;  // From 0.
  int quad = 0;   // From 0.
  int pos = 0;    // 0..3 in the quad.
  char arm = 'A';
  int rep = 0;          // From 0.
  std::int64_t ns = 0;  // > 0.
  bool throttled = false;
};

inline constexpr absl::string_view kSamplesHeader = "series,role,round,quad,pos,arm,rep,ns,throttled";

// Reads a whole samples file. INVALID_ARGUMENT naming the line ("samples: line 17: …") for a file that is empty or has
// no row, a BOM, CRLF, a NUL, text that isn't UTF-8, a missing or unknown column, an unknown role or role `diagnostic`,
// a number that isn't written in digits alone or is too long, a time that is not positive, and whatever MeasureSeries
// refuses (measured_series.h): a duplicate row, an arm that lacks blocks or repetitions, a quad that is not ABBA or
// BAAB, a series with two roles.
absl::StatusOr<std::vector<Sample>> ParseSamples(absl::string_view csv);

// The inverse; a series name with a comma, quote or newline is quoted (RFC 4180), and ParseSamples reads it back.
std::string FormatSamples(const std::vector<Sample>& samples);

absl::string_view RoleName(Role role);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_SAMPLES_H_
