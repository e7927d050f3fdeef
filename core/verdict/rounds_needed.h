// How many rounds a job that ran out of them would have needed.
#ifndef KEVAL_CORE_VERDICT_ROUNDS_NEEDED_H_
#define KEVAL_CORE_VERDICT_ROUNDS_NEEDED_H_

#include <string>

#include "core/verdict/config.h"
#include "core/verdict/look.h"

namespace keval::verdict {

inline constexpr int kMoreThanMaxRounds = 201;  // "More than 200".

struct RoundsNeeded {
  int rounds = 0;               // 2 to 200, or kMoreThanMaxRounds; 0: not estimated (a series has no spread yet).
  std::string goal;             // IMPROVED or EQUIVALENT, whichever takes fewer rounds; empty where rounds is 0.
  std::string limiting_series;  // The series that needs them.
};

// From a look's L and sd, at the levels of the last look: the least R at which t(1 - a)·sd/√R is below |L| (improved;
// for a guard below δ + L) or δ - |L| (equivalent), and at which the control would be shown. An estimate: it takes the
// present L as the truth, and knows nothing of the rule that 80 % of rounds are positive.
RoundsNeeded EstimateRoundsNeeded(const Look& look, const Config& config);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_ROUNDS_NEEDED_H_
