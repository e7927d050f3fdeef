#include "core/verdict/rounds_needed.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/verdict/statistics.h"

namespace keval::verdict {
namespace {

constexpr int kMaxRounds = kMoreThanMaxRounds - 1;

// The least R in [2, 200] with t(p, R - 1)·sd/√R < room; the left side falls with R.
int LeastRounds(double p, double sd, double room) {
  const auto enough = [&](int R) { return TQuantile(R - 1, p) * sd / std::sqrt(R) < room; };
  if (!(room > 0) || !enough(kMaxRounds)) return kMoreThanMaxRounds;
  int low = 1;  // Not enough: there is no interval.
  int high = kMaxRounds;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (enough(middle) ? high : low) = middle;
  }
  return high;
}

// Raises `needed` to `rounds`; the first series among equals stays the limiting one.
void Raise(const SeriesLook& series, int rounds, RoundsNeeded* needed) {
  if (rounds <= needed->rounds) return;
  needed->rounds = rounds;
  needed->limiting_series = series.series;
}

RoundsNeeded ForImproved(const Look& look, double a_sup, double a_eq) {
  RoundsNeeded needed{.goal = "IMPROVED"};
  double eps = std::numeric_limits<double>::infinity();
  for (const SeriesLook& series : look.series) {
    if (series.role == Role::kControl) continue;
    eps = std::min(eps, series.delta);
    if (series.role == Role::kPrimary) {
      Raise(series, LeastRounds(1 - a_sup, series.sd, series.L), &needed);
      eps = std::min(eps, 0.5 * std::abs(series.L));
    } else {
      Raise(series, LeastRounds(1 - a_eq, series.sd, series.delta + series.L), &needed);
    }
  }
  for (const SeriesLook& series : look.series) {
    if (series.role != Role::kControl) continue;
    Raise(series, LeastRounds(0.95, series.sd, eps - std::abs(series.L)), &needed);
  }
  return needed;
}

RoundsNeeded ForEquivalent(const Look& look, double a_eq) {
  RoundsNeeded needed{.goal = "EQUIVALENT"};
  double eps = std::numeric_limits<double>::infinity();
  for (const SeriesLook& series : look.series) {
    if (series.role == Role::kControl) continue;
    eps = std::min(eps, series.delta);
    Raise(series, LeastRounds(1 - a_eq, series.sd, series.delta - std::abs(series.L)), &needed);
  }
  for (const SeriesLook& series : look.series) {
    if (series.role != Role::kControl) continue;
    Raise(series, LeastRounds(0.95, series.sd, eps - std::abs(series.L)), &needed);
  }
  return needed;
}

}  // namespace

RoundsNeeded EstimateRoundsNeeded(const Look& look, const Config& config) {
  for (const SeriesLook& series : look.series) {
    if (series.n < 2) return {.limiting_series = series.series};
  }
  const RoundsNeeded improved = ForImproved(look, config.a_sup.back(), config.a_eq.back());
  const RoundsNeeded equivalent = ForEquivalent(look, config.a_eq.back());
  return improved.rounds <= equivalent.rounds ? improved : equivalent;
}

}  // namespace keval::verdict
