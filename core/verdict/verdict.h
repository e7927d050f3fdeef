// From samples to a verdict: pure functions, no I/O, no clock, no torch. The procedure is described in
// docs/measuring.md.
#ifndef KEVAL_CORE_VERDICT_VERDICT_H_
#define KEVAL_CORE_VERDICT_VERDICT_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/verdict/samples.h"

namespace keval::verdict {

struct Config {
  std::vector<int> looks = {6, 10, 16, 24};
  std::vector<double> a_sup = {.002, .002, .003, .003};
  std::vector<double> a_eq = {.010, .010, .015, .015};
  std::vector<double> a_ctl = {.001, .001, .0015, .0015};
  std::map<std::string, double> delta = {{"primary", 0.01}, {"guard", 0.01}};  // By series name or role; a name wins.
  double consist = 0.8;
  double ctl_floor = 0.002;
  double thr_quads_max = 0.2;
  double thr_asym_p = 0.01;
};

// INVALID_ARGUMENT naming the key ("a_sup", "looks[1]", …) for lengths that differ, looks that don't ascend or are < 2,
// levels outside (0, 0.5), δ outside (0, 1).
absl::Status ValidateConfig(const Config& config);

// A series' figures at one look, in ln units; NaN where n < 2.
struct SeriesLook {
  std::string series;
  Role role = Role::kPrimary;
  std::vector<double> D;    // Values of the rounds that have one, in round order.
  std::vector<int> rounds;  // Which rounds those are.
  int n = 0;
  double L = 0;
  double sd = 0;  // Of D.
  double se = 0;
  int df = 0;
  int pos = 0;  // Rounds with D > 0.
  double meanratio_log = 0;
  double p_gain = 0;
  double p_loss = 0;
  double p_holm = 0;  // Running maximum; NaN for a control.
  double sup_lo = 0, sup_hi = 0, eq_lo = 0, eq_hi = 0;
  std::array<double, 2> ci95 = {0, 0};
  double ctl_shown = 0;  // |L| + t(.95)·se.
  double hodges_lehmann = 0;
  double within_sd = 0;  // Between quads inside rounds, pooled.
  double smallest_detectable = 0;
  double p95_ratio_log = 0;  // ln of the ratio of the arms' 95th percentile times.
  bool is_short = false;
  bool non_inferior = false, equivalent = false, improved = false, regressed = false;
};

struct Look {
  int R = 0;
  std::vector<SeriesLook> series;  // In file order.
  std::string candidate;           // IMPROVED, REGRESSED, TAIL, EQUIVALENT or empty.
  bool control_fail = false;
  bool control_ok = false;
  std::vector<std::string> regressed;
  double eps = 0;
};

enum class Memory : std::uint8_t { kNotRecorded, kMet, kNotMet };

// What else decides, besides times.
struct Evidence {
  Memory memory = Memory::kNotRecorded;
  std::string contract_failure;  // Non-empty: row 1 holds; which check, which arm.
  std::string failure;           // Non-empty: row 2 holds; the reason, e.g. CANDIDATE_CRASHED.
};

struct Outcome {
  std::string verdict;  // IMPROVED, EQUIVALENT, REGRESSED, INCONCLUSIVE, CONTRACT_FAILED, FAILED.
  std::string reason;
  std::string
      detail;    // For a person: which rule fired, the limiting series, the next step. Never empty when INCONCLUSIVE.
  int rule = 0;  // Row of the decision table; 75 is row 7b.
  std::optional<int> stop_look;
  std::vector<Look> looks;
  std::array<int, 2> throttled_blocks = {0, 0};  // A, B.
  double throttle_asym_p = 1;
  double quads_dropped = 0;  // Fraction.
  Memory memory = Memory::kNotRecorded;
  bool non_inferior = false;
  int rounds_needed = 0;  // At BUDGET: 201 is "more than 200"; 0: not estimated.
  std::string limiting_series;
};

// The whole procedure offline, over every look that `samples` reach. INVALID_ARGUMENT for a config that ValidateConfig
// refuses or a series without δ.
absl::StatusOr<Outcome> Decide(const std::vector<Sample>& samples, const Config& config, const Evidence& evidence = {});

// The live job's question after a round: nullopt while the table says "next look" (row 10).
absl::StatusOr<std::optional<Outcome>> DecideSoFar(const std::vector<Sample>& samples, const Config& config,
                                                   const Evidence& evidence);

// Whether a verdict meets what was required. `require`: improved, equivalent, no-regression or any.
enum class Require : std::uint8_t { kImproved, kEquivalent, kNoRegression, kAny };
std::optional<Require> ParseRequire(absl::string_view text);

// 0 met; 1 REGRESSED; 3 not met; 4 CONTRACT_FAILED; 5 FAILED by an arm; 6 FAILED by harness, device or infrastructure.
int ExitCode(absl::string_view verdict, absl::string_view reason, absl::string_view failure_cause, bool non_inferior,
             Require require);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_VERDICT_H_
