#include "core/verdict/characteristics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/number.h"
#include "core/verdict/calibration_job.h"
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

  JobRates Rates(int rounds, bool resampled, double effect) const {
    const auto share = [this](Call call) { return ClopperPearson(calls.at(static_cast<std::size_t>(call)), jobs); };
    JobRates rates{.rounds = rounds, .resampled = resampled};
    rates.improved = share(Call::kImproved);
    rates.equivalent = share(Call::kEquivalent);
    rates.regressed = share(Call::kRegressed);
    rates.control_failed = share(Call::kControlFailed);
    rates.undecided = share(Call::kUndecided);
    rates.wrong_sign = effect > 0 ? rates.regressed : effect < 0 ? rates.improved : ClopperPearson(0, 0);
    rates.covered = ClopperPearson(covered, jobs);
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
JobRates DisjointJobs(absl::Span<const JobRound> rounds, double effect, int size, double quantile,
                      const Config& config) {
  const Config until = UpTo(config, size);
  const auto step = static_cast<std::size_t>(size);
  Tally tally;
  for (std::size_t i = 0; i + step <= rounds.size(); i += step) {
    const auto job = rounds.subspan(i, step);
    tally.Add(DecideJob(job, until).call, Covers(job, size, quantile, effect));
  }
  return tally.Rates(size, /*resampled=*/false, effect);
}

// Whole jobs, each round drawn with replacement; what had stopped by each look.
std::vector<JobRates> ResampledJobs(absl::Span<const JobRound> rounds, double effect, double mean,
                                    const std::vector<double>& quantiles, const Config& config, int jobs,
                                    Draws* draws) {
  std::vector<Tally> tallies(config.looks.size());
  std::vector<JobRound> job(static_cast<std::size_t>(config.looks.back()));
  for (int i = 0; i < jobs; ++i) {
    for (JobRound& round : job) round = rounds[draws->Next(rounds.size())];
    const Decided decided = DecideJob(job, config);
    for (std::size_t look = 0; look < tallies.size(); ++look) {
      const int until = config.looks[look];
      tallies[look].Add(decided.rounds <= until ? decided.call : Call::kUndecided,
                        Covers(job, until, quantiles[look], mean));
    }
  }
  std::vector<JobRates> rates;
  for (std::size_t look = 0; look < tallies.size(); ++look) {
    rates.push_back(tallies[look].Rates(config.looks[look], /*resampled=*/true, effect));
  }
  return rates;
}

EffectRates RatesOf(double effect, const std::vector<JobRound>& rounds, const Config& config, int resampled_jobs,
                    Draws draws) {
  std::vector<double> primary;
  std::vector<double> control;
  for (const JobRound& round : rounds) {
    primary.push_back(round.primary);
    control.push_back(round.control);
  }
  EffectRates out{.effect = effect, .rounds = static_cast<int>(rounds.size())};
  out.mean = Mean(primary);
  out.sd = SampleSd(primary);
  out.control_mean = Mean(control);
  out.control_sd = SampleSd(control);
  std::vector<double> quantiles;
  for (const int look : config.looks) quantiles.push_back(TQuantile(look - 1, 0.975));
  for (std::size_t look = 0; look < config.looks.size(); ++look) {
    out.jobs.push_back(DisjointJobs(rounds, effect, config.looks[look], quantiles[look], config));
  }
  const auto resampled = ResampledJobs(rounds, effect, out.mean, quantiles, config, resampled_jobs, &draws);
  out.jobs.insert(out.jobs.end(), resampled.begin(), resampled.end());
  return out;
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
  std::map<double, std::vector<JobRound>> by_effect;
  for (const CalibrationRound& round : rounds) by_effect[round.effect].push_back({round.primary, round.control, {}});
  std::vector<double> aa;
  if (const auto found = by_effect.find(0); found != by_effect.end()) {
    for (const JobRound& round : found->second) aa.push_back(round.primary);
  }
  const std::vector<double> means = CalibrationMeans(aa);
  Characteristics out{.resampled_jobs = options.resampled_jobs, .seed = options.seed};
  out.delta = options.margin.value_or(CalibratedMargin(means));
  out.delta_source = options.margin.has_value() ? "given" : means.empty() ? "default" : "calibration";
  Config config = options.config;
  config.delta = {{"primary", out.delta}, {"guard", out.delta}};
  if (absl::Status status = ValidateConfig(config); !status.ok()) return status;

  std::vector<double> effects;
  for (const auto& [effect, unused] : by_effect) effects.push_back(effect);
  std::stable_partition(effects.begin(), effects.end(), [](double effect) { return effect == 0; });
  std::uint64_t stream = options.seed;  // Each effect, then each made-up target, has its own.
  for (const double effect : effects) {
    out.effects.push_back(RatesOf(effect, by_effect[effect], config, options.resampled_jobs, Draws(stream++)));
  }
  out.targets = JudgeTargets(out.effects, by_effect, config, options.resampled_jobs, stream);
  return out;
}

}  // namespace keval::verdict
