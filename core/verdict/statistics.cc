#include "core/verdict/statistics.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

namespace keval::verdict {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Indices of `p` by ascending value, NaN as 1 (last among equals would change nothing: 1 is never rejected).
std::vector<std::size_t> AscendingOrder(absl::Span<const double> p) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&p](std::size_t i) { return std::isnan(p[i]) ? 1.0 : p[i]; };
  std::stable_sort(order.begin(), order.end(), [&key](std::size_t a, std::size_t b) { return key(a) < key(b); });
  return order;
}

constexpr double kMostTrials = 1e7;

struct Bounds {
  double lo = 0;
  double hi = 1;
};

// Of Clopper and Pearson, 2.5 % on each side; `count` and `trials` may be fractions.
Bounds ExactBounds(double count, double trials) {
  using Binomial = boost::math::binomial;
  constexpr double kTail = 0.025;
  Bounds bounds;
  if (!(trials > 0)) return bounds;
  if (count > 0) bounds.lo = Binomial::find_lower_bound_on_p(trials, count, kTail);
  if (count < trials) bounds.hi = Binomial::find_upper_bound_on_p(trials, count, kTail);
  return bounds;
}

}  // namespace

double TQuantile(int df, double p) { return boost::math::quantile(boost::math::students_t(df), p); }

OneSidedP TTest(double mean, double se, int df) {
  if (std::isnan(mean) || std::isnan(se) || df < 1) return {kNaN, kNaN};
  if (se == 0) {
    const double gain = mean > 0 ? 0 : mean < 0 ? 1 : 0.5;
    return {gain, 1 - gain};
  }
  const boost::math::students_t distribution(df);
  const double t = mean / se;
  if (std::isinf(t)) return t > 0 ? OneSidedP{0, 1} : OneSidedP{1, 0};
  return {boost::math::cdf(boost::math::complement(distribution, t)), boost::math::cdf(distribution, t)};
}

double BinomialTwoSidedP(int a, int b) {
  const int n = a + b;
  if (n == 0) return 1;
  // Under equal chances the distribution is symmetric, so both tails weigh the same.
  const double tail = boost::math::cdf(boost::math::binomial(n, 0.5), std::min(a, b));
  return std::min(1.0, 2 * tail);
}

Proportion ClopperPearson(int count, int trials) { return DependentProportion(count, trials, trials); }

Proportion DependentProportion(int count, int trials, double independent) {
  Proportion share{.count = count, .trials = trials, .rate = kNaN};
  if (trials == 0) return share;
  share.rate = static_cast<double>(count) / trials;
  const double told = std::min<double>(independent, trials);
  const Bounds bounds = ExactBounds(share.rate * told, told);
  share.lo = bounds.lo;
  share.hi = bounds.hi;
  return share;
}

double TrialsNeeded(double failures, double least, double most) {
  const auto enough = [&](double trials) {
    const double count = least <= 0 ? failures : most >= 1 ? trials - failures : (least + most) / 2 * trials;
    const Bounds bounds = ExactBounds(count, trials);
    return bounds.lo >= least && bounds.hi <= most;
  };
  double high = std::max(1.0, std::ceil(failures));
  while (high < kMostTrials && !enough(high)) high *= 2;
  double low = high / 2;  // Too few, or not tried.
  while (high - low > 1) {
    const double middle = std::floor((low + high) / 2);
    (enough(middle) ? high : low) = middle;
  }
  return std::min(std::ceil(high), kMostTrials);
}

double Mean(absl::Span<const double> values) {
  if (values.empty()) return kNaN;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double SampleSd(absl::Span<const double> values) {
  if (values.size() < 2) return kNaN;
  const double mean = Mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double Median(std::vector<double> values) {
  if (values.empty()) return kNaN;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

double Percentile(std::vector<double> values, double p) {
  if (values.empty()) return kNaN;
  const int rank = std::max(1, CeilShare(p, static_cast<int>(values.size())));
  const auto nth = values.begin() + (rank - 1);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

double HodgesLehmann(absl::Span<const double> values) {
  std::vector<double> means;
  means.reserve(values.size() * (values.size() + 1) / 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::size_t j = i; j < values.size(); ++j) means.push_back(0.5 * (values[i] + values[j]));
  }
  return Median(std::move(means));
}

std::vector<double> HolmAdjust(absl::Span<const double> p) {
  std::vector<double> adjusted(p.size(), kNaN);
  double running = 0;
  auto left = static_cast<double>(p.size());
  for (const std::size_t i : AscendingOrder(p)) {
    if (!std::isnan(p[i])) {
      running = std::min(1.0, std::max(running, left * p[i]));
      adjusted[i] = running;
    }
    left -= 1;
  }
  return adjusted;
}

std::vector<bool> HolmReject(absl::Span<const double> p, double level) {
  std::vector<bool> rejected(p.size(), false);
  auto left = static_cast<double>(p.size());
  for (const std::size_t i : AscendingOrder(p)) {
    if (!(p[i] <= level / left)) break;
    rejected[i] = true;
    left -= 1;
  }
  return rejected;
}

int CeilShare(double share, int n) { return static_cast<int>(std::ceil(share * n - 1e-9)); }

}  // namespace keval::verdict
