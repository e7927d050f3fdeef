// A device's own margin for "material", from what its A/A jobs have shown.
#ifndef KEVAL_CORE_VERDICT_MARGIN_H_
#define KEVAL_CORE_VERDICT_MARGIN_H_

#include <vector>

#include "absl/types/span.h"

namespace keval::verdict {

// Rounds of the first look, and so of the shortest job that decides.
inline constexpr int kCalibrationRounds = 6;

// L-hat of each disjoint run of kCalibrationRounds of `D`, the values of A/A rounds in their order. What is left at the
// end is in none.
std::vector<double> CalibrationMeans(absl::Span<const double> D);

// clamp(2 x 95th percentile of |L-hat|, 0.5 %, 2 %), the percentile by nearest rank; 1 % where `means` is empty. In ln
// units.
double CalibratedMargin(absl::Span<const double> means);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_MARGIN_H_
