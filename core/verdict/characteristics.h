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
#include "core/verdict/serial_correlation.h"
#include "core/verdict/statistics.h"

namespace keval::verdict {

// A round of a calibration; all in ln units, signs as L.
struct CalibrationRound {
  double effect = 0;    // Injected; 0 in an A/A round.
  std::string started;  // When, as text.
  double primary = 0;   // D_r of the primary…
  double control = 0;   // …and of base against its copy.
  int session = 0;      // Rounds of another one were collected with another device or server.
};

struct CharacteristicOptions {
  Config config;                 // Looks and levels; δ comes from `margin`.
  std::optional<double> margin;  // δ; absent: CalibratedMargin of the A/A rounds.
  bool is_h200 = false;          // Targets that hold for that device alone apply.
  int resampled_jobs = 4000;
  std::uint64_t seed = 1;  // Of the draws.
};

// Jobs of at most `rounds` rounds, all with the same effect. What became of them adds up to all of them; the last two
// count besides.
struct JobRates {
  int rounds = 0;
  // Made of blocks of rounds that follow each other, drawn with replacement; else of `rounds` rounds that follow each
  // other, each in at most one job.
  bool resampled = false;
  double independent_jobs = 0;  // As many would tell as much: rounds that there are, over `rounds`.
  Proportion improved;
  Proportion equivalent;
  Proportion regressed;
  Proportion control_failed;
  Proportion undecided;   // BUDGET and TAIL_CONFLICT.
  Proportion wrong_sign;  // A gain called REGRESSED, or a loss IMPROVED; no trials where there is no effect.
  // Whether the 95 % interval at exactly `rounds` rounds holds the effect; of a resampled job, what the mean of such
  // jobs is on average.
  Proportion covered;
};

struct EffectRates {
  double effect = 0;
  int rounds = 0;
  int runs = 0;  // Of rounds that follow each other.
  double mean = 0;
  double sd = 0;
  SerialCorrelation lag1;
  double control_mean = 0;
  double control_sd = 0;
  SerialCorrelation control_lag1;
  std::vector<JobRates> jobs;  // For each look disjoint, then for each resampled.
};

struct TargetRate {
  int rounds = 0;
  bool resampled = false;
  Proportion share;
  double independent_jobs = 0;
  // "met" or "missed" where the whole interval says so, else "undecided"; "no_rounds" without a job.
  std::string status;
  // Where undecided: independent jobs for "met", if none of those to come failed; more where some do.
  double jobs_needed = 0;
};

// A line of what the procedure must hold.
struct Target {
  std::string id;
  std::string text;
  double least = 0;
  double most = 1;
  // By the disjoint jobs: "missed" where one of their rates is, "met" where all are, else "undecided"; "no_rounds"
  // without any, "not_applicable" on another device than it is for.
  std::string status;
  std::vector<TargetRate> rates;
};

// What the rounds' autocorrelation does at the first look, where it is worst: `level` is a_sup, the probability with
// which a series without a difference is taken for a gain there (and with which for a loss), control and margin aside.
// Of a correlation below 0 nothing is made.
struct SerialEffect {
  int rounds = 0;
  double level = 0;
  double reached = 0;     // With the autocorrelation found…
  double reached_hi = 0;  // …and with its upper limit.
  double ask_for = 0;     // The level to put into the spec so that `level` is reached.
};

struct Characteristics {
  double delta = 0;
  std::string delta_source;  // "given", "calibration" or "default".
  int resampled_jobs = 0;
  std::uint64_t seed = 0;
  int block_rounds = 0;    // Of what resampled jobs are made of: the first look's.
  SerialCorrelation lag1;  // Of the primaries of all kinds.
  SerialEffect serial_effect;
  std::vector<EffectRates> effects;  // A/A first, then by effect.
  std::vector<Target> targets;
  std::vector<std::string> notes;  // What a reader should know, and do.
};

// INVALID_ARGUMENT: no round, a config that ValidateConfig refuses, a margin outside (0, 1), fewer than 1 or more than
// 1,000,000 resampled jobs.
absl::StatusOr<Characteristics> Characterize(absl::Span<const CalibrationRound> rounds,
                                             const CharacteristicOptions& options);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_CHARACTERISTICS_H_
