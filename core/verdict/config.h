// What was fixed before a job ran: looks, levels, margins and limits.
#ifndef KEVAL_CORE_VERDICT_CONFIG_H_
#define KEVAL_CORE_VERDICT_CONFIG_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace keval::verdict {

// The least level that can be spent: a t quantile of much less has no double.
inline constexpr double kMinLevel = 1e-9;
// A series with values from fewer rounds decides nothing.
inline constexpr int kMinDecidingRounds = 4;

struct Config {
  std::vector<int> looks = {6, 10, 16, 24};  // Rounds at which the table is asked.
  // One-sided levels spent at each look: superiority and regression, equivalence and non-inferiority.
  std::vector<double> a_sup = {.002, .002, .003, .003};
  std::vector<double> a_eq = {.010, .010, .015, .015};
  std::vector<double> a_ctl = {.001, .001, .0015, .0015};                      // Two-sided, for the control.
  std::map<std::string, double> delta = {{"primary", 0.01}, {"guard", 0.01}};  // By series name or role; a name wins.
  double consist = 0.8;        // Share of rounds that must be positive for a gain.
  double ctl_floor = 0.002;    // |L| up to which a control never fails, in ln units.
  double thr_quads_max = 0.2;  // Share of quads that throttling may take.
  double thr_asym_p = 0.01;    // Two-sided p under which throttling is called unequal.
};

// INVALID_ARGUMENT naming the key ("a_sup", "looks[1]", "delta.guard", …) for no look, lengths that differ, looks that
// don't ascend or are outside [2, 10000], levels outside [1e-9, 0.5), δ outside (0, 1), shares outside [0, 1].
absl::Status ValidateConfig(const Config& config);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_CONFIG_H_
