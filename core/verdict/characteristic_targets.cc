#include "core/verdict/characteristic_targets.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "core/verdict/calibration_job.h"
#include "core/verdict/statistics.h"

namespace keval::verdict {
namespace {

constexpr double kSlotBias = 0.006;

// A file says 0.03 or ln 1.03 for 3 %.
bool IsAbout(double effect, double wanted) { return std::abs(effect - wanted) <= 0.02 * std::abs(wanted); }

TargetRate Judge(int rounds, bool resampled, const Proportion& share, double independent, const Target& target) {
  TargetRate rate{.rounds = rounds, .resampled = resampled, .share = share, .independent_jobs = independent};
  if (share.trials == 0) {
    rate.status = "no_rounds";
    return rate;
  }
  const bool inside = share.lo >= target.least && share.hi <= target.most;
  const bool outside = share.hi < target.least || share.lo > target.most;
  rate.status = inside ? "met" : outside ? "missed" : "undecided";
  if (inside || outside) return rate;
  const double jobs = std::min<double>(independent, share.trials);
  const double failures = target.least <= 0 ? share.rate * jobs : (1 - share.rate) * jobs;
  rate.jobs_needed = TrialsNeeded(failures, target.least, target.most);
  return rate;
}

// The target's own, from its disjoint jobs' rates; jobs of a length that there is none of leave it undecided.
std::string StatusOf(const Target& target) {
  bool any = false;
  bool all_met = true;
  for (const TargetRate& rate : target.rates) {
    if (rate.resampled) continue;
    if (rate.status == "missed") return rate.status;
    any |= rate.status != "no_rounds";
    all_met &= rate.status == "met";
  }
  return !any ? "no_rounds" : all_met ? "met" : "undecided";
}

using Which = std::function<bool(const EffectRates& effect)>;

// The shares of the effects that `which` takes, put together.
void AddRates(const std::vector<EffectRates>& effects, const Which& which, int rounds,
              const Proportion JobRates::*share, Target* target) {
  for (const bool resampled : {false, true}) {
    int count = 0;
    int trials = 0;
    double independent = 0;
    for (const EffectRates& effect : effects) {
      if (!which(effect)) continue;
      for (const JobRates& rates : effect.jobs) {
        if (rates.rounds != rounds || rates.resampled != resampled || (rates.*share).trials == 0) continue;
        count += (rates.*share).count;
        trials += (rates.*share).trials;
        independent += rates.independent_jobs;
      }
    }
    const Proportion pooled = DependentProportion(count, trials, independent);
    target->rates.push_back(Judge(rounds, resampled, pooled, independent, *target));
  }
}

using JobOf = absl::Span<const JobRound>;
using Compose = std::function<std::vector<JobRound>(JobOf aa, JobOf gain)>;

// A target about jobs that are made of A/A rounds, and where `gain` is given of a gain's rounds too.
class MadeTarget {
 public:
  MadeTarget(const Config& config, const Runs& aa, const Runs* gain) : config_(config), aa_(aa), gain_(gain) {}

  TargetRate Disjoint(const Compose& compose, const Target& target) const {
    const int size = config_.looks.back();
    const auto aa = DisjointWindows(aa_, size);
    const auto gain = gain_ == nullptr ? aa : DisjointWindows(*gain_, size);
    const std::size_t jobs = std::min(aa.size(), gain.size());
    int improved = 0;
    for (std::size_t i = 0; i < jobs; ++i) improved += IsImproved(compose(aa[i], gain[i])) ? 1 : 0;
    const auto trials = static_cast<int>(jobs);
    return Judge(size, /*resampled=*/false, ClopperPearson(improved, trials), trials, target);
  }

  TargetRate Resampled(const Compose& compose, const Target& target, int jobs, std::uint64_t seed) const {
    const int size = config_.looks.back();
    const BlockSource aa(aa_, config_.looks.front());
    const BlockSource gain(gain_ == nullptr ? aa_ : *gain_, config_.looks.front());
    if (aa.empty() || gain.empty()) return Judge(size, /*resampled=*/true, ClopperPearson(0, 0), 0, target);
    Draws draws(seed);
    std::vector<JobRound> aa_job;
    std::vector<JobRound> gain_job;
    int improved = 0;
    for (int i = 0; i < jobs; ++i) {
      if (gain_ != nullptr) gain.DrawJob(size, &draws, &gain_job);
      aa.DrawJob(size, &draws, &aa_job);
      improved += IsImproved(compose(aa_job, gain_job)) ? 1 : 0;
    }
    const double independent = static_cast<double>(std::min(aa.rounds(), gain.rounds())) / size;
    return Judge(size, /*resampled=*/true, DependentProportion(improved, jobs, independent), independent, target);
  }

 private:
  bool IsImproved(const std::vector<JobRound>& job) const { return DecideJob(job, config_).call == Call::kImproved; }

  const Config& config_;
  const Runs& aa_;
  const Runs* const gain_;
};

// A gain beside a guard that loses: A/A rounds, moved by as much as an injected loss moves them.
Compose WithGuard(double loss) {
  return [loss](JobOf aa, JobOf gain) {
    std::vector<JobRound> job(gain.begin(), gain.end());
    for (std::size_t i = 0; i < job.size(); ++i) job[i].guard = aa[i].primary - loss;
    return job;
  };
}

// Whatever runs second looks faster: A/A rounds, primary and control moved alike.
std::vector<JobRound> WithSlotBias(JobOf aa, JobOf /*gain*/) {
  std::vector<JobRound> job(aa.begin(), aa.end());
  for (JobRound& round : job) {
    round.primary += kSlotBias;
    round.control += kSlotBias;
  }
  return job;
}

}  // namespace

std::vector<Target> JudgeTargets(const std::vector<EffectRates>& effects, const std::map<double, Runs>& rounds,
                                 const Config& config, bool is_h200, int resampled_jobs, std::uint64_t stream) {
  const int first = config.looks.front();
  const int last = config.looks.back();
  const auto near = [](double wanted) {
    return [wanted](const EffectRates& effect) { return IsAbout(effect.effect, wanted); };
  };
  const auto is_aa = [](const EffectRates& effect) { return effect.effect == 0; };
  const auto is_large = [](const EffectRates& effect) { return std::abs(effect.effect) >= 0.98 * 0.01; };
  const auto any = [](const EffectRates&) { return true; };
  struct Line {
    Target target;
    Which which;
    std::vector<int> rounds;  // Jobs of each length are told apart.
    const Proportion JobRates::*share;
    bool h200_only = false;
  };
  const Line lines[] = {
      {{"aa_improved", "no difference: IMPROVED in at most 1 %", 0, 0.01}, is_aa, {first, last}, &JobRates::improved},
      {{"aa_regressed", "no difference: REGRESSED in at most 1 %", 0, 0.01},
       is_aa,
       {first, last},
       &JobRates::regressed},
      {{"gain_3pct", "3 % gain: IMPROVED in at least 95 % by 10 rounds", 0.95, 1},
       near(0.03),
       {10},
       &JobRates::improved},
      {{"gain_1pct", "1 % gain: IMPROVED in at least 90 % by 24 rounds", 0.9, 1},
       near(0.01),
       {24},
       &JobRates::improved},
      {{"gain_0.5pct", "on an H200, 0.5 % gain: IMPROVED in at least 95 % by 6 rounds", 0.95, 1},
       near(0.005),
       {6},
       &JobRates::improved,
       /*h200_only=*/true},
      {{"gain_0.3pct", "on an H200, 0.3 % gain: IMPROVED in at least 80 % by 10 rounds", 0.8, 1},
       near(0.003),
       {10},
       &JobRates::improved,
       /*h200_only=*/true},
      {{"wrong_sign", "1 % and more: the wrong sign in at most 0.1 %", 0, 0.001},
       is_large,
       {first, last},
       &JobRates::wrong_sign},
      {{"coverage", "the 95 % interval at a fixed number of rounds holds the effect in 93 to 97 %", 0.93, 0.97},
       any,
       config.looks,
       &JobRates::covered}};
  std::vector<Target> targets;
  for (const Line& line : lines) {
    targets.push_back(line.target);
    if (line.h200_only && !is_h200) targets.back().status = "not_applicable";
    for (const int rounds_of_job : line.rounds) {
      AddRates(effects, line.which, rounds_of_job, line.share, &targets.back());
    }
  }

  const Runs none;
  const Runs* aa = &none;
  const Runs* gain = &none;
  for (const auto& [effect, runs] : rounds) {
    if (effect == 0) aa = &runs;
    if (IsAbout(effect, 0.03)) gain = &runs;
  }
  const double delta = config.delta.at("guard");
  struct MadeLine {
    Target target;
    bool with_gain;
    Compose compose;
  };
  const MadeLine made_lines[] = {
      {{"guard_at_margin", "a guard at -δ beside a 3 % gain: IMPROVED in at most 5 %", 0, 0.05},
       true,
       WithGuard(delta)},
      {{"guard_at_two_margins", "a guard at -2δ beside a 3 % gain: IMPROVED in at most 0.1 %", 0, 0.001},
       true,
       WithGuard(2 * delta)},
      {{"slot_bias", "a bias of 0.6 % on the candidate's slot: IMPROVED in at most 1 %", 0, 0.01},
       false,
       WithSlotBias}};
  for (const MadeLine& line : made_lines) {
    const MadeTarget made(config, *aa, line.with_gain ? gain : nullptr);
    Target target = line.target;
    target.rates = {made.Disjoint(line.compose, target),
                    made.Resampled(line.compose, target, resampled_jobs, stream++)};
    targets.push_back(std::move(target));
  }
  for (Target& target : targets) {
    if (target.status.empty()) target.status = StatusOf(target);
  }
  return targets;
}

}  // namespace keval::verdict
