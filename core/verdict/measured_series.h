// Samples put together: blocks to quads to the value of a round.
#ifndef KEVAL_CORE_VERDICT_MEASURED_SERIES_H_
#define KEVAL_CORE_VERDICT_MEASURED_SERIES_H_

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/verdict/samples.h"

namespace keval::verdict {

// What one series measured in one round. A throttled quad is dropped whole: it is counted and leaves nothing else.
struct MeasuredRound {
  int round = 0;
  int quads = 0;                                       // All of them.
  int quads_dropped = 0;                               // Throttled.
  std::array<int, 2> throttled_blocks = {0, 0};        // A, B.
  std::vector<double> quad_values;                     // ½ΣA − ½ΣB of block medians of ln t, by valid quad.
  std::array<std::vector<double>, 2> times_ns;         // Every timed repetition of the valid quads; A, B.
  std::array<std::vector<double>, 2> block_median_ns;  // By block of the valid quads; A, B.
  // D_r: the mean of the quads without the least and the greatest; with fewer than 5 valid quads their plain mean, with
  // fewer than 3 nothing.
  std::optional<double> value;
  double mean_ratio_log = 0;  // ln(Σt_A / Σt_B) over the valid quads; NaN without any.
};

struct MeasuredSeries {
  std::string name;
  Role role = Role::kPrimary;
  std::vector<MeasuredRound> rounds;  // Ascending; a round that the file doesn't hold isn't here.
};

// How to name sample `i` in an error: "line 17" of a file.
using RowName = std::function<std::string(std::size_t index)>;

// Series in the order of their first sample. INVALID_ARGUMENT, naming a sample: a series with two roles, a duplicate
// row, a block with two arms, a quad that isn't ABBA or BAAB, blocks of a series that differ in repetitions, a time
// that is not positive.
absl::StatusOr<std::vector<MeasuredSeries>> MeasureSeries(const std::vector<Sample>& samples, const RowName& row_name);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_MEASURED_SERIES_H_
