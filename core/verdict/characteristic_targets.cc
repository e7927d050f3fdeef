#include "core/verdict/characteristic_targets.h"

#include <cmath>
#include <cstddef>
#include <functional>
#include <string>

#include "core/verdict/statistics.h"

namespace keval::verdict {
namespace {

constexpr double kSlotBias = 0.006;

// A file says 0.03 or ln 1.03 for 3 %.
bool IsAbout(double effect, double wanted) { return std::abs(effect - wanted) <= 0.02 * std::abs(wanted); }

TargetRate Judge(int rounds, bool resampled, const Proportion& share, const Target& target) {
  TargetRate rate{.rounds = rounds, .resampled = resampled, .share = share};
  const bool inside = share.lo >= target.least && share.hi <= target.most;
  const bool outside = share.hi < target.least || share.lo > target.most;
  rate.status = share.trials == 0 ? "no_rounds" : inside ? "met" : outside ? "missed" : "open";
  return rate;
}

using Which = std::function<bool(const EffectRates& effect)>;

// The shares of the effects that `which` takes, put together.
void AddRates(const std::vector<EffectRates>& effects, const Which& which, int rounds,
              const Proportion JobRates::*share, Target* target) {
  for (const bool resampled : {false, true}) {
    int count = 0;
    int trials = 0;
    for (const EffectRates& effect : effects) {
      if (!which(effect)) continue;
      for (const JobRates& rates : effect.jobs) {
        if (rates.rounds != rounds || rates.resampled != resampled) continue;
        count += (rates.*share).count;
        trials += (rates.*share).trials;
      }
    }
    target->rates.push_back(Judge(rounds, resampled, ClopperPearson(count, trials), *target));
  }
}

// How often jobs of rounds made by `make` end IMPROVED.
Proportion ImprovedShare(const std::function<JobRound(Draws*)>& make, const Config& config, int jobs,
                         std::uint64_t seed) {
  Draws draws(seed);
  std::vector<JobRound> job(static_cast<std::size_t>(config.looks.back()));
  int improved = 0;
  for (int i = 0; i < jobs; ++i) {
    for (JobRound& round : job) round = make(&draws);
    improved += DecideJob(job, config).call == Call::kImproved ? 1 : 0;
  }
  return ClopperPearson(improved, jobs);
}

}  // namespace

std::vector<Target> JudgeTargets(const std::vector<EffectRates>& effects,
                                 const std::map<double, std::vector<JobRound>>& rounds, const Config& config,
                                 int resampled_jobs, std::uint64_t stream) {
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
      {{"gain_0.5pct", "0.5 % gain, where the noise is an H200's: IMPROVED in at least 95 % by 6 rounds", 0.95, 1},
       near(0.005),
       {6},
       &JobRates::improved},
      {{"gain_0.3pct", "0.3 % gain, where the noise is an H200's: IMPROVED in at least 80 % by 10 rounds", 0.8, 1},
       near(0.003),
       {10},
       &JobRates::improved},
      {{"wrong_sign", "1 % and more: the wrong sign in at most 0.1 %", 0, 0.001},
       is_large,
       {first, last},
       &JobRates::wrong_sign},
      {{"coverage", "the 95 % interval at 6 rounds holds the effect in 93 to 97 %", 0.93, 0.97},
       any,
       {6},
       &JobRates::covered}};
  std::vector<Target> targets;
  for (const Line& line : lines) {
    targets.push_back(line.target);
    for (const int rounds_of_job : line.rounds) {
      AddRates(effects, line.which, rounds_of_job, line.share, &targets.back());
    }
  }

  const std::vector<JobRound>* aa = nullptr;
  const std::vector<JobRound>* gain = nullptr;
  for (const auto& [effect, of] : rounds) {
    if (effect == 0) aa = &of;
    if (IsAbout(effect, 0.03)) gain = &of;
  }
  const double delta = config.delta.at("guard");
  const auto add_made = [&](Target target, bool possible, const std::function<JobRound(Draws*)>& make) {
    const Proportion share = possible ? ImprovedShare(make, config, resampled_jobs, stream) : ClopperPearson(0, 0);
    ++stream;
    target.rates.push_back(Judge(last, /*resampled=*/true, share, target));
    targets.push_back(std::move(target));
  };
  // A gain of 3 % beside a guard that loses: A/A rounds, moved by as much as an injected loss moves them.
  const auto with_guard = [&](double loss) {
    return [aa, gain, loss](Draws* draws) {
      JobRound round = (*gain)[draws->Next(gain->size())];
      round.guard = (*aa)[draws->Next(aa->size())].primary - loss;
      return round;
    };
  };
  const bool both = aa != nullptr && gain != nullptr;
  add_made({"guard_at_margin", "a guard at -δ beside a 3 % gain: IMPROVED in at most 5 %", 0, 0.05}, both,
           with_guard(delta));
  add_made({"guard_at_two_margins", "a guard at -2δ beside a 3 % gain: IMPROVED in at most 0.1 %", 0, 0.001}, both,
           with_guard(2 * delta));
  // Whatever runs second looks 0.6 % faster: A/A rounds, primary and control moved alike.
  add_made({"slot_bias", "a bias of 0.6 % on the candidate's slot: IMPROVED in at most 1 %", 0, 0.01}, aa != nullptr,
           [aa](Draws* draws) {
             JobRound round = (*aa)[draws->Next(aa->size())];
             round.primary += kSlotBias;
             round.control += kSlotBias;
             return round;
           });
  return targets;
}

}  // namespace keval::verdict
