// What every line of the contract is judged on, and the judges. Internal to core/contract.
#ifndef KEVAL_CORE_CONTRACT_EVIDENCE_H_
#define KEVAL_CORE_CONTRACT_EVIDENCE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/contract/arm.h"
#include "core/contract/cases.h"
#include "core/contract/contract.h"
#include "core/contract/tally.h"
#include "core/linear_logp/reference.h"

namespace keval::contract {

// One case, run once by both arms with every gradient wanted.
struct Sample {
  Case test_case;
  linear_logp::ReferenceResult truth;
  std::array<Outcome, 2> outcomes;  // By Arm::index().
};

struct Evidence {
  CaseMaker maker;
  std::array<Arm, 2> arms;
  bool quick = false;
  std::vector<Sample> samples;

  const Arm& base() const { return arms[0]; }
  const Arm& candidate() const { return arms[1]; }
  // Both production paths, base's as base: what P6 and P7 compare.
  bool IsProductionPair() const {
    return base().Claims(linear_logp::ProductionPath::kMatmulAdd) &&
           candidate().Claims(linear_logp::ProductionPath::kAddmm);
  }
};

// Runs the standard cases in every dtype, with float32 gradients and under autocast. Throws linear_logp::Stopped.
void Gather(Evidence* evidence);

// Notes in `tally` that `outcome` has nothing to judge, and says so by false.
bool Usable(const Case& test_case, const Outcome& outcome, Tally* tally);

// Elements of logp and the gradients that differ in their bits.
std::int64_t CountDifferentResults(const Outcome& a, const Outcome& b);

// A line of the contract. `check` is called for each arm; where `of_both`, once, with the candidate.
struct Line {
  const char* id;
  void (*check)(const Evidence& evidence, const Arm& arm, Tally* tally);
  bool of_both = false;
};

absl::Span<const Line> ProductionPathLines();  // P1 to P8.
absl::Span<const Line> ValueLines();           // P9, C1, C2, C5, C8, C10, C11, C14.
absl::Span<const Line> BehaviourLines();       // P10, C3, C4, C6, C7, C9, C13.
absl::Span<const Line> LargeLines();           // C12.

}  // namespace keval::contract

#endif  // KEVAL_CORE_CONTRACT_EVIDENCE_H_
