// One job made of calibration rounds, and what became of many. Internal to core/verdict's characteristics.
#ifndef KEVAL_CORE_VERDICT_CALIBRATION_JOB_H_
#define KEVAL_CORE_VERDICT_CALIBRATION_JOB_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "core/verdict/config.h"

namespace keval::verdict {

struct JobRound {
  double primary = 0;
  double control = 0;
  std::optional<double> guard;  // In all rounds of a job or in none.
};

enum class Call : std::uint8_t { kImproved, kEquivalent, kRegressed, kControlFailed, kUndecided };

struct Decided {
  Call call = Call::kUndecided;
  int rounds = 0;  // At which the job stopped.
};

// The decision table over these rounds, with core/verdict's own functions. A round's mean ratio, which a calibration
// file doesn't hold, is taken to be its value; memory counts as met.
Decided DecideJob(absl::Span<const JobRound> rounds, const Config& config);

// SplitMix64: a stream of draws that a reader can make again in any language.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) {}

  // In [0, count), by remainder. REQUIRES count > 0.
  std::size_t Next(std::size_t count) {
    state_ += 0x9e3779b97f4a7c15ULL;
    std::uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return static_cast<std::size_t>((x ^ (x >> 31)) % count);
  }

 private:
  std::uint64_t state_;
};

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_CALIBRATION_JOB_H_
