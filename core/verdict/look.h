// A look: every series' figures after the first R rounds, and what the control says about them.
#ifndef KEVAL_CORE_VERDICT_LOOK_H_
#define KEVAL_CORE_VERDICT_LOOK_H_

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "core/verdict/config.h"
#include "core/verdict/measured_series.h"
#include "core/verdict/samples.h"

namespace keval::verdict {

// A series' figures at one look, in ln units; positive is a gain. NaN where too few rounds have a value (n < 2, or
// n < 1 for L). The flags hold only for what they are asked of: a control is neither improved nor regressed.
struct SeriesLook {
  std::string series;
  Role role = Role::kPrimary;
  double delta = 0;         // Margin; 0 for a control.
  std::vector<double> D;    // Values of the rounds that have one, in round order.
  std::vector<int> rounds;  // Which rounds those are, from 0.
  int n = 0;
  double L = 0;
  double sd = 0;  // Of D: between rounds.
  double se = 0;
  int df = 0;
  int pos = 0;               // Rounds with D > 0.
  double meanratio_log = 0;  // Mean of ln(Σt_A / Σt_B) over those rounds.
  double p_gain = 0;
  double p_loss = 0;
  double p_holm = 0;  // Of a loss, adjusted over primaries and guards; NaN for a control.
  double sup_lo = 0, sup_hi = 0, eq_lo = 0, eq_hi = 0;
  std::array<double, 2> ci95 = {0, 0};
  double ctl_shown = 0;            // |L| + t(.95)·se.
  double hodges_lehmann = 0;       // Sensitivity check beside L.
  double within_sd = 0;            // Between quads inside rounds, pooled.
  double smallest_detectable = 0;  // (t(1 - a_sup) + t(.8))·sd/√n.
  double p95_ratio_log = 0;        // ln of the ratio of the arms' 95th percentile times.
  bool is_short = false;           // n < max(4, ⌈0.8·R⌉).
  bool non_inferior = false, equivalent = false, improved = false, regressed = false;
  bool control_failed = false, control_shown = false;  // Of a control alone.
};

struct Look {
  int R = 0;
  std::vector<SeriesLook> series;  // In file order.
  std::string candidate;           // IMPROVED, REGRESSED, TAIL, EQUIVALENT or empty: before the control is asked.
  bool has_control = false;
  bool control_fail = false;
  bool control_ok = false;  // There is a control, none failed, and all are shown within eps.
  std::vector<std::string> regressed;
  double eps = 0;  // min δ; for IMPROVED and TAIL also at most half the smallest |L| of a primary.
};

// Look number `index` of `config` over the rounds below `config.looks[index]`. REQUIRES: ValidateConfig(config) is OK,
// at least one primary, and a δ for every primary and guard.
Look TakeLook(const std::vector<MeasuredSeries>& series, const Config& config, std::size_t index);

// δ of a series: by its name, else by its role; NaN where there is neither.
double DeltaOf(const Config& config, const std::string& series, Role role);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_LOOK_H_
