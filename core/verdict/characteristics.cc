#include "core/verdict/characteristics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/number.h"
#include "core/verdict/calibration_job.h"
#include "core/verdict/calibration_runs.h"
#include "core/verdict/characteristic_targets.h"
#include "core/verdict/margin.h"

namespace keval::verdict {
namespace {

constexpr int kMostResampledJobs = 1000000;
constexpr int kCalls = 5;

// Counts of one line of a table.
struct Tally {
  int jobs = 0;
  std::array<int, kCalls> calls = {};
  int covered = 0;

  void Add(Call call, bool covers) {
    ++jobs;
    ++calls.at(static_cast<std::size_t>(call));
    covered += covers ? 1 : 0;
  }

  // As `independent` jobs would tell.
  JobRates Rates(int rounds, bool resampled, double independent, double effect) const {
    const auto share = [&](Call call) {
      return DependentProportion(calls.at(static_cast<std::size_t>(call)), jobs, independent);
    };
    JobRates rates{.rounds = rounds, .resampled = resampled, .independent_jobs = independent};
    rates.improved = share(Call::kImproved);
    rates.equivalent = share(Call::kEquivalent);
    rates.regressed = share(Call::kRegressed);
    rates.control_failed = share(Call::kControlFailed);
    rates.undecided = share(Call::kUndecided);
    rates.wrong_sign = effect > 0 ? rates.regressed : effect < 0 ? rates.improved : ClopperPearson(0, 0);
    rates.covered = DependentProportion(covered, jobs, independent);
    return rates;
  }
};

// Whether the 95 % interval of the first `count` primaries holds `truth`; `quantile`: t(.975, count - 1).
bool Covers(absl::Span<const JobRound> rounds, int count, double quantile, double truth) {
  std::vector<double> values;
  for (const JobRound& round : rounds.subspan(0, static_cast<std::size_t>(count))) values.push_back(round.primary);
  return std::abs(Mean(values) - truth) <= quantile * SampleSd(values) / std::sqrt(count);
}

// `config` with the looks up to `rounds`.
Config UpTo(Config config, int rounds) {
  const auto looks = static_cast<std::size_t>(std::upper_bound(config.looks.begin(), config.looks.end(), rounds) -
                                              config.looks.begin());
  config.looks.resize(looks);
  config.a_sup.resize(looks);
  config.a_eq.resize(looks);
  config.a_ctl.resize(looks);
  return config;
}

// Jobs of `size` rounds, cut from the file in its order.
JobRates DisjointJobs(const Runs& runs, double effect, int size, double quantile, const Config& config) {
  const Config until = UpTo(config, size);
  Tally tally;
  for (const auto& job : DisjointWindows(runs, size)) {
    tally.Add(DecideJob(job, until).call, Covers(job, size, quantile, effect));
  }
  return tally.Rates(size, /*resampled=*/false, tally.jobs, effect);
}

// Whole jobs, drawn in blocks; what had stopped by each look.
std::vector<JobRates> ResampledJobs(const BlockSource& source, double effect, const std::vector<double>& quantiles,
                                    const Config& config, int jobs, Draws* draws) {
  std::vector<Tally> tallies(config.looks.size());
  std::vector<JobRound> job;
  for (int i = 0; i < jobs && !source.empty(); ++i) {
    source.DrawJob(config.looks.back(), draws, &job);
    const Decided decided = DecideJob(job, config);
    for (std::size_t look = 0; look < tallies.size(); ++look) {
      const int until = config.looks[look];
      tallies[look].Add(decided.rounds <= until ? decided.call : Call::kUndecided,
                        Covers(job, until, quantiles[look], source.mean()));
    }
  }
  std::vector<JobRates> rates;
  for (std::size_t look = 0; look < tallies.size(); ++look) {
    const int rounds = config.looks[look];
    const double independent = static_cast<double>(source.rounds()) / rounds;
    rates.push_back(tallies[look].Rates(rounds, /*resampled=*/true, independent, effect));
  }
  return rates;
}

// One figure of every round, run by run.
std::vector<std::vector<double>> Values(const Runs& runs, double JobRound::*figure) {
  std::vector<std::vector<double>> values;
  for (const auto& run : runs) {
    values.emplace_back();
    for (const JobRound& round : run) values.back().push_back(round.*figure);
  }
  return values;
}

std::vector<double> Joined(const std::vector<std::vector<double>>& runs) {
  std::vector<double> all;
  for (const auto& run : runs) all.insert(all.end(), run.begin(), run.end());
  return all;
}

EffectRates RatesOf(double effect, const Runs& runs, const Config& config, int resampled_jobs, Draws draws) {
  const auto primary = Values(runs, &JobRound::primary);
  const auto control = Values(runs, &JobRound::control);
  EffectRates out{.effect = effect, .rounds = CountRounds(runs), .runs = static_cast<int>(runs.size())};
  out.mean = Mean(Joined(primary));
  out.sd = SampleSd(Joined(primary));
  out.lag1 = Lag1({primary});
  out.control_mean = Mean(Joined(control));
  out.control_sd = SampleSd(Joined(control));
  out.control_lag1 = Lag1({control});
  std::vector<double> quantiles;
  for (const int look : config.looks) quantiles.push_back(TQuantile(look - 1, 0.975));
  for (std::size_t look = 0; look < config.looks.size(); ++look) {
    out.jobs.push_back(DisjointJobs(runs, effect, config.looks[look], quantiles[look], config));
  }
  const BlockSource source(runs, config.looks.front());
  const auto resampled = ResampledJobs(source, effect, quantiles, config, resampled_jobs, &draws);
  out.jobs.insert(out.jobs.end(), resampled.begin(), resampled.end());
  return out;
}

SerialEffect EffectOf(const SerialCorrelation& lag1, const Config& config) {
  const int rounds = config.looks.front();
  const double level = config.a_sup.front();
  const double rho = lag1.lag1 > 0 ? lag1.lag1 : 0;  // NaN: nothing is known, and nothing made of it.
  SerialEffect effect{.rounds = rounds, .level = level};
  effect.reached = LevelReached(rho, rounds, level);
  effect.reached_hi = LevelReached(std::max(0.0, lag1.hi), rounds, level);
  effect.ask_for = LevelToAskFor(rho, rounds, level);
  return effect;
}

std::string Percent(double share) { return absl::StrCat(FixedText(100 * share, 2), " %"); }

// Why rates are undecided, and whether the rounds are what t takes them for.
std::vector<std::string> NotesOn(const Characteristics& shown, int sessions) {
  std::vector<std::string> notes;
  const std::string lag1 = absl::StrCat("lag-1 autocorrelation ", FixedText(shown.lag1.lag1, 2), " [",
                                        FixedText(shown.lag1.lo, 2), ", ", FixedText(shown.lag1.hi, 2), "]");
  const SerialEffect& effect = shown.serial_effect;
  if (std::isnan(shown.lag1.lag1)) {
    notes.emplace_back("Too few rounds follow each other to tell whether one tells of the next.");
  } else if (shown.lag1.lo > 0) {
    notes.push_back(absl::StrCat(
        "Rounds are not independent: ", lag1, ". A series without a difference then passes for a gain at the look of ",
        effect.rounds, " rounds with ", Percent(effect.reached), " (at the upper limit ", Percent(effect.reached_hi),
        ") instead of ", Percent(effect.level),
        ", and for a loss as often; margin and control stop some of these. Keep the machine quieter, or put ",
        "procedure.a_sup: ", FixedText(effect.ask_for, 6),
        " for that look into the spec, and less in the same way for the others."));
  } else {
    notes.push_back(absl::StrCat("That rounds are independent is not contradicted: ", lag1,
                                 "; at the upper limit the level ", Percent(effect.level), " at ", effect.rounds,
                                 " rounds would be ", Percent(effect.reached_hi), "."));
  }
  if (sessions > 1) {
    notes.push_back(absl::StrCat("The rounds come from ", sessions,
                                 " sessions (other devices or servers); no job joins two of them."));
  }
  const auto undecided = std::count_if(shown.targets.begin(), shown.targets.end(),
                                       [](const Target& target) { return target.status == "undecided"; });
  if (undecided > 0) {
    notes.push_back(absl::StrCat(undecided, " of ", shown.targets.size(),
                                 " targets are undecided: too few jobs for an interval that lies on one side."));
  }
  return notes;
}

absl::Status CheckOptions(absl::Span<const CalibrationRound> rounds, const CharacteristicOptions& options) {
  if (rounds.empty()) return InvalidField("rounds", "0 rounds", "at least 1 round");
  if (options.resampled_jobs < 1 || options.resampled_jobs > kMostResampledJobs) {
    return InvalidField("resampled_jobs", absl::StrCat(options.resampled_jobs),
                        absl::StrCat("in [1, ", kMostResampledJobs, "]"));
  }
  if (options.margin.has_value() && !(*options.margin > 0 && *options.margin < 1)) {
    return InvalidField("margin", DoubleText(*options.margin), "in (0, 1)");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Characteristics> Characterize(absl::Span<const CalibrationRound> rounds,
                                             const CharacteristicOptions& options) {
  if (absl::Status status = CheckOptions(rounds, options); !status.ok()) return status;
  const std::map<double, Runs> by_effect = SplitIntoRuns(rounds);
  const std::vector<double> means = AaMeans(rounds);
  Characteristics out{.resampled_jobs = options.resampled_jobs, .seed = options.seed};
  out.delta = options.margin.value_or(CalibratedMargin(means));
  out.delta_source = options.margin.has_value() ? "given" : means.empty() ? "default" : "calibration";
  Config config = options.config;
  config.delta = {{"primary", out.delta}, {"guard", out.delta}};
  if (absl::Status status = ValidateConfig(config); !status.ok()) return status;

  out.block_rounds = config.looks.front();

  std::vector<double> effects;
  std::vector<std::vector<std::vector<double>>> primaries;
  for (const auto& [effect, runs] : by_effect) {
    effects.push_back(effect);
    primaries.push_back(Values(runs, &JobRound::primary));
  }
  out.lag1 = Lag1(primaries);
  out.serial_effect = EffectOf(out.lag1, config);
  std::stable_partition(effects.begin(), effects.end(), [](double effect) { return effect == 0; });
  std::uint64_t stream = options.seed;  // Each effect, then each made-up target, has its own.
  for (const double effect : effects) {
    out.effects.push_back(RatesOf(effect, by_effect.at(effect), config, options.resampled_jobs, Draws(stream++)));
  }
  out.targets = JudgeTargets(out.effects, by_effect, config, options.is_h200, options.resampled_jobs, stream);
  std::set<int> sessions;
  for (const CalibrationRound& round : rounds) sessions.insert(round.session);
  out.notes = NotesOn(out, static_cast<int>(sessions.size()));
  return out;
}

}  // namespace keval::verdict
