// From samples to a verdict: pure functions, no I/O, no clock, no torch. The procedure is described in docs/verdict.md.
#ifndef KEVAL_CORE_VERDICT_VERDICT_H_
#define KEVAL_CORE_VERDICT_VERDICT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/verdict/config.h"
#include "core/verdict/look.h"
#include "core/verdict/measured_series.h"
#include "core/verdict/require.h"  // IWYU pragma: export
#include "core/verdict/rounds_needed.h"
#include "core/verdict/samples.h"

namespace keval::verdict {

enum class Memory : std::uint8_t { kNotRecorded, kMet, kNotMet };

// "not_recorded", "met", "not_met".
absl::string_view MemoryName(Memory memory);

// What else decides, besides times.
struct Evidence {
  Memory memory = Memory::kNotRecorded;
  std::string contract_failure;  // Non-empty: row 1 holds; which check, which arm. Becomes the reason.
  std::string failure;           // Non-empty: row 2 holds; the reason, e.g. CANDIDATE_CRASHED.
  std::string for_more_rounds;   // What more rounds take, e.g. "raise max_device_seconds"; empty: collecting on.
};

// Rows of the decision table, by their numbers there.
enum class Rule : std::uint8_t {
  kContractFailed = 1,
  kFailed = 2,
  kThrottleAsymmetry = 3,
  kThrottleBudget = 4,
  kControl = 5,
  kRegressed = 6,
  kTailConflict = 7,
  kMemory = 75,  // Row 7b.
  kImproved = 8,
  kEquivalent = 9,
  kBudget = 11,  // Also MISSING_ROUNDS.
};

// "1" … "11"; kMemory is "7b".
std::string RuleName(Rule rule);

struct Outcome {
  std::string verdict;  // IMPROVED, EQUIVALENT, REGRESSED, INCONCLUSIVE, CONTRACT_FAILED, FAILED.
  std::string reason;
  std::string detail;  // Printable, for a person: what decided, and for INCONCLUSIVE the next step. Never empty.
  Rule rule = Rule::kBudget;
  std::optional<int> stop_look;  // Rounds at the look that decided; at BUDGET the last one configured.
  std::vector<Look> looks;       // Every look asked, the deciding one last; empty where rows 3 or 4 hold.
  std::array<int, 2> throttled_blocks = {0, 0};  // A, B; over all series, control included.
  double throttle_asym_p = 1;
  double quads_dropped = 0;  // Fraction of all quads.
  Memory memory = Memory::kNotRecorded;
  bool non_inferior = false;   // Every primary and guard non-inferior and the control shown, at the last look asked.
  RoundsNeeded rounds_needed;  // At BUDGET; rounds = 0 elsewhere.
  int rounds = 0;              // That the samples reach.
};

// The whole procedure offline, over every look that `samples` reach. INVALID_ARGUMENT for a config that ValidateConfig
// refuses, samples that MeasureSeries refuses, none of role primary, a series without δ, or a δ for a name that is
// neither a role nor a series. With a failure in `evidence`, `samples` may be empty.
absl::StatusOr<Outcome> Decide(const std::vector<Sample>& samples, const Config& config, const Evidence& evidence = {});

// Rows 5 to 11 for rounds whose values are known already: what Decide does with samples, `detail` left empty. For the
// procedure's operating characteristics, which are computed over thousands of jobs. REQUIRES as TakeLook.
Outcome DecideMeasured(const std::vector<MeasuredSeries>& series, const Config& config);

// The live job's question after a round, `samples` holding every round so far: nullopt while the table says "next look"
// (row 10) or the rounds are no look. The errors of Decide. What it returns, Decide returns from the same samples.
absl::StatusOr<std::optional<Outcome>> DecideSoFar(const std::vector<Sample>& samples, const Config& config,
                                                   const Evidence& evidence);

// Every look that `samples` reach, whatever an earlier one decided: what a watcher is shown on the way. The errors of
// Decide.
absl::StatusOr<std::vector<Look>> TakeLooks(const std::vector<Sample>& samples, const Config& config);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_VERDICT_H_
