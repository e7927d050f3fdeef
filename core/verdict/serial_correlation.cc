#include "core/verdict/serial_correlation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/verdict/config.h"
#include "core/verdict/statistics.h"

namespace keval::verdict {
namespace {

constexpr int kFewestPairs = 4;
constexpr double kNormal975 = 1.959963984540054;
constexpr double kAlmostOne = 0.999999;  // Fisher's z has no value at 1.

// By how much t is too large: the true standard error of the mean over the one that s gives on average.
double TInflation(double rho, int rounds) {
  double sum = 1;
  double power = 1;
  for (int lag = 1; lag < rounds; ++lag) {
    power *= rho;
    sum += 2 * (1 - static_cast<double>(lag) / rounds) * power;
  }
  // s² is too small as well, for it doesn't see what the rounds have in common.
  const double spread = std::max(1e-9, 1 - (sum - 1) / (rounds - 1));
  return std::sqrt(sum / spread);
}

}  // namespace

SerialCorrelation Lag1(const std::vector<std::vector<std::vector<double>>>& groups) {
  SerialCorrelation out;
  double products = 0;
  for (const auto& runs : groups) {
    std::vector<double> all;
    for (const auto& run : runs) all.insert(all.end(), run.begin(), run.end());
    const double mean = Mean(all);
    double sum = 0;
    for (const double value : all) sum += (value - mean) * (value - mean);
    if (!(sum > 0)) continue;
    const double unit = sum / static_cast<double>(all.size());
    for (const auto& run : runs) {
      for (std::size_t i = 1; i < run.size(); ++i) {
        products += (run[i - 1] - mean) * (run[i] - mean) / unit;
        ++out.pairs;
      }
    }
  }
  if (out.pairs < kFewestPairs) {
    out.lag1 = std::numeric_limits<double>::quiet_NaN();
    return out;
  }
  out.lag1 = std::clamp(products / out.pairs, -kAlmostOne, kAlmostOne);
  const double z = std::atanh(out.lag1);
  const double half = kNormal975 / std::sqrt(out.pairs - kFewestPairs + 1);
  out.lo = std::tanh(z - half);
  out.hi = std::tanh(z + half);
  return out;
}

double LevelReached(double rho, int rounds, double level) {
  const double quantile = TQuantile(rounds - 1, 1 - level);
  return TTest(quantile, TInflation(rho, rounds), rounds - 1).gain;
}

double LevelToAskFor(double rho, int rounds, double level) {
  const double quantile = TQuantile(rounds - 1, 1 - level);
  return std::max(kMinLevel, TTest(quantile * TInflation(rho, rounds), 1, rounds - 1).gain);
}

}  // namespace keval::verdict
