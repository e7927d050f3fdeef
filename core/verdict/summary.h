// What a report says of each series, for readers: milliseconds and percentages beside the figures that decided.
#ifndef KEVAL_CORE_VERDICT_SUMMARY_H_
#define KEVAL_CORE_VERDICT_SUMMARY_H_

#include <array>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/verdict/config.h"
#include "core/verdict/look.h"
#include "core/verdict/samples.h"
#include "core/verdict/verdict.h"

namespace keval::verdict {

struct SeriesSummary {
  SeriesLook look;  // At the last look of the outcome; over all rounds, at the first look's levels, where it has none.
  // improved, regressed, equivalent, non_inferior, inconclusive or short; a control: shown, not_shown, failed or short;
  // no_look where the outcome has no look.
  std::string status;
  double base_ms = 0;  // Median over valid blocks of the block's median, all rounds; NaN without any.
  double candidate_ms = 0;
  int quads = 0;  // Over all rounds.
  int quads_dropped = 0;
  std::array<int, 2> throttled_blocks = {0, 0};  // A, B.
};

// In file order. The errors of Decide.
absl::StatusOr<std::vector<SeriesSummary>> Summarize(const std::vector<Sample>& samples, const Config& config,
                                                     const Outcome& outcome);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_SUMMARY_H_
