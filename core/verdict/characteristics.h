// What the procedure does on a device: rates of right and wrong verdicts over rounds whose effect is known, and what
// they are held against. Pure functions; the method, so that a reader can do it again: docs/calibration.md.
#ifndef KEVAL_CORE_VERDICT_CHARACTERISTICS_H_
#define KEVAL_CORE_VERDICT_CHARACTERISTICS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/verdict/config.h"
#include "core/verdict/statistics.h"

namespace keval::verdict {

// A round of a calibration; all in ln units, signs as L.
struct CalibrationRound {
  double effect = 0;    // Injected; 0 in an A/A round.
  std::string started;  // When, as text.
  double primary = 0;   // D_r of the primary…
  double control = 0;   // …and of base against its copy.
};

struct CharacteristicOptions {
  Config config;                 // Looks and levels; δ comes from `margin`.
  std::optional<double> margin;  // δ; absent: CalibratedMargin of the A/A rounds.
  int resampled_jobs = 4000;
  std::uint64_t seed = 1;  // Of the draws.
};

// Jobs of at most `rounds` rounds, all with the same effect. What became of them adds up to all of them; the last two
// count besides.
struct JobRates {
  int rounds = 0;
  bool resampled = false;  // Drawn with replacement; else each round of the file is in at most one job.
  Proportion improved;
  Proportion equivalent;
  Proportion regressed;
  Proportion control_failed;
  Proportion undecided;   // BUDGET and TAIL_CONFLICT.
  Proportion wrong_sign;  // A gain called REGRESSED, or a loss IMPROVED; no trials where there is no effect.
  // Whether the 95 % interval at exactly `rounds` rounds holds the effect; of a resampled job, the mean of the rounds
  // that it was drawn from.
  Proportion covered;
};

struct EffectRates {
  double effect = 0;
  int rounds = 0;
  double mean = 0;
  double sd = 0;
  double control_mean = 0;
  double control_sd = 0;
  std::vector<JobRates> jobs;  // For each look disjoint, then for each resampled.
};

struct TargetRate {
  int rounds = 0;
  bool resampled = false;
  Proportion share;
  std::string status;  // "met" or "missed" where the whole interval says so, else "open"; "no_rounds".
};

// A line of what the procedure must hold.
struct Target {
  std::string id;
  std::string text;
  double least = 0;
  double most = 1;
  std::vector<TargetRate> rates;
};

struct Characteristics {
  double delta = 0;
  std::string delta_source;  // "given", "calibration" or "default".
  int resampled_jobs = 0;
  std::uint64_t seed = 0;
  std::vector<EffectRates> effects;  // A/A first, then by effect.
  std::vector<Target> targets;
};

// INVALID_ARGUMENT: no round, a config that ValidateConfig refuses, a margin outside (0, 1), fewer than 1 or more than
// 1,000,000 resampled jobs.
absl::StatusOr<Characteristics> Characterize(absl::Span<const CalibrationRound> rounds,
                                             const CharacteristicOptions& options);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_CHARACTERISTICS_H_
