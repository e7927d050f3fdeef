#include "core/verdict/look.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/verdict/statistics.h"

namespace keval::verdict {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kShortShare = 0.8;
constexpr double kTailShare = 0.95;

// Levels of one look.
struct Levels {
  double sup = 0;
  double eq = 0;
  double ctl = 0;
};

void TakeTails(const std::vector<const MeasuredRound*>& rounds, SeriesLook* look) {
  std::array<std::vector<double>, 2> times;
  double squares = 0;
  std::size_t degrees = 0;
  for (const MeasuredRound* round : rounds) {
    for (std::size_t arm = 0; arm < 2; ++arm) {
      times.at(arm).insert(times.at(arm).end(), round->times_ns.at(arm).begin(), round->times_ns.at(arm).end());
    }
    const double mean = Mean(round->quad_values);
    for (const double value : round->quad_values) squares += (value - mean) * (value - mean);
    degrees += round->quad_values.size() - 1;
  }
  look->within_sd = degrees == 0 ? kNaN : std::sqrt(squares / static_cast<double>(degrees));
  look->p95_ratio_log =
      std::log(Percentile(std::move(times[0]), kTailShare) / Percentile(std::move(times[1]), kTailShare));
}

// L ± t(1 - a)·se. A point where se is 0.
std::array<double, 2> Interval(const SeriesLook& look, double one_sided_level) {
  const double half = TQuantile(look.df, 1 - one_sided_level) * look.se;
  return {look.L - half, look.L + half};
}

void TakeIntervals(const Levels& levels, SeriesLook* look) {
  if (look->n < 2) {
    look->sup_lo = look->sup_hi = look->eq_lo = look->eq_hi = kNaN;
    look->ci95 = {kNaN, kNaN};
    look->ctl_shown = look->smallest_detectable = kNaN;
    return;
  }
  const auto sup = Interval(*look, levels.sup);
  const auto eq = Interval(*look, levels.eq);
  look->sup_lo = sup[0];
  look->sup_hi = sup[1];
  look->eq_lo = eq[0];
  look->eq_hi = eq[1];
  look->ci95 = Interval(*look, 0.025);
  look->ctl_shown = std::abs(look->L) + TQuantile(look->df, 0.95) * look->se;
  look->smallest_detectable = (TQuantile(look->df, 1 - levels.sup) + TQuantile(look->df, 0.8)) * look->se;
}

SeriesLook TakeSeries(const MeasuredSeries& series, const Config& config, int R, const Levels& levels) {
  SeriesLook look{.series = series.name, .role = series.role};
  std::vector<const MeasuredRound*> valued;
  std::vector<double> mean_ratios;
  for (const MeasuredRound& round : series.rounds) {
    if (round.round >= R || !round.value) continue;
    valued.push_back(&round);
    look.D.push_back(*round.value);
    look.rounds.push_back(round.round);
    mean_ratios.push_back(round.mean_ratio_log);
    if (*round.value > 0) ++look.pos;
  }
  look.n = static_cast<int>(look.D.size());
  look.df = std::max(0, look.n - 1);
  look.L = Mean(look.D);
  look.sd = SampleSd(look.D);
  look.se = look.sd / std::sqrt(look.n);
  look.meanratio_log = Mean(mean_ratios);
  look.hodges_lehmann = HodgesLehmann(look.D);
  const OneSidedP p = TTest(look.L, look.se, look.df);
  look.p_gain = p.gain;
  look.p_loss = p.loss;
  look.p_holm = kNaN;
  TakeTails(valued, &look);
  TakeIntervals(levels, &look);
  look.is_short = look.n < std::max(kMinDecidingRounds, CeilShare(kShortShare, R));
  if (series.role == Role::kControl) return look;
  look.delta = DeltaOf(config, series.name, series.role);
  look.non_inferior = look.eq_lo > -look.delta;
  look.equivalent = look.non_inferior && look.eq_hi < look.delta;
  look.improved = look.sup_lo > 0 && look.pos >= CeilShare(config.consist, look.n);
  return look;
}

void TestRegressions(double level, Look* look) {
  std::vector<SeriesLook*> tested;
  std::vector<double> p;
  for (SeriesLook& series : look->series) {
    if (series.role == Role::kControl) continue;
    tested.push_back(&series);
    p.push_back(series.p_loss);
  }
  const std::vector<double> adjusted = HolmAdjust(p);
  const std::vector<bool> rejected = HolmReject(p, level);
  for (std::size_t i = 0; i < tested.size(); ++i) {
    tested[i]->p_holm = adjusted[i];
    tested[i]->regressed = rejected[i] && tested[i]->L <= -tested[i]->delta;
    if (tested[i]->regressed) look->regressed.push_back(tested[i]->series);
  }
}

std::string Candidate(const Look& look) {
  bool improved = true;
  bool equivalent = true;
  bool tail = false;
  for (const SeriesLook& series : look.series) {
    // What is missing never makes a verdict.
    if (series.is_short) return "";
    if (series.role == Role::kControl) continue;
    equivalent = equivalent && series.equivalent;
    if (series.role == Role::kPrimary) {
      improved = improved && series.improved;
      tail = tail || series.meanratio_log <= 0;
    } else {
      improved = improved && series.non_inferior;
    }
  }
  if (!look.regressed.empty()) return "REGRESSED";
  if (improved) return tail ? "TAIL" : "IMPROVED";
  return equivalent ? "EQUIVALENT" : "";
}

// Its two-sided interval excludes 0 by more than what is let pass.
bool ControlFails(const SeriesLook& series, const Config& config, double level) {
  if (series.n < 2) return false;
  const auto interval = Interval(series, 0.5 * level);
  return (interval[0] > 0 || interval[1] < 0) && std::abs(series.L) > config.ctl_floor;
}

void AskControl(const Config& config, double level, Look* look) {
  look->eps = std::numeric_limits<double>::infinity();
  const bool claims_gain = look->candidate == "IMPROVED" || look->candidate == "TAIL";
  for (const SeriesLook& series : look->series) {
    if (series.role == Role::kControl) continue;
    look->eps = std::min(look->eps, series.delta);
    if (claims_gain && series.role == Role::kPrimary) look->eps = std::min(look->eps, 0.5 * std::abs(series.L));
  }
  bool shown = true;
  for (SeriesLook& series : look->series) {
    if (series.role != Role::kControl) continue;
    look->has_control = true;
    series.control_failed = ControlFails(series, config, level);
    series.control_shown = series.ctl_shown < look->eps && !series.control_failed;
    look->control_fail = look->control_fail || series.control_failed;
    shown = shown && series.control_shown;
  }
  look->control_ok = look->has_control && shown;
}

}  // namespace

double DeltaOf(const Config& config, const std::string& series, Role role) {
  if (const auto by_name = config.delta.find(series); by_name != config.delta.end()) return by_name->second;
  const auto by_role = config.delta.find(std::string(RoleName(role)));
  return by_role == config.delta.end() ? kNaN : by_role->second;
}

Look TakeLook(const std::vector<MeasuredSeries>& series, const Config& config, std::size_t index) {
  const Levels levels{config.a_sup[index], config.a_eq[index], config.a_ctl[index]};
  Look look{.R = config.looks[index]};
  for (const MeasuredSeries& one : series) look.series.push_back(TakeSeries(one, config, look.R, levels));
  TestRegressions(levels.sup, &look);
  look.candidate = Candidate(look);
  AskControl(config, levels.ctl, &look);
  return look;
}

}  // namespace keval::verdict
