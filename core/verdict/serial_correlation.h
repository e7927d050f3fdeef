// How much one round tells of the next, and what that does to the levels of Student's t, which takes rounds for
// independent. Pure functions.
#ifndef KEVAL_CORE_VERDICT_SERIAL_CORRELATION_H_
#define KEVAL_CORE_VERDICT_SERIAL_CORRELATION_H_

#include <vector>

namespace keval::verdict {

// Lag-1 autocorrelation over `pairs` pairs of rounds that follow each other, and its approximate 95 % interval
// (Fisher's z). Fewer than 4 pairs, or no spread: `lag1` is NaN and the interval [-1, 1].
struct SerialCorrelation {
  double lag1 = 0;
  double lo = -1;
  double hi = 1;
  int pairs = 0;
};

// `groups`: kinds of rounds, each with its runs; a value counts from its kind's mean, and in units of its kind's
// spread. Pairs are within a run. Not corrected for its bias, of about -1 / rounds.
SerialCorrelation Lag1(const std::vector<std::vector<std::vector<double>>>& groups);

// The probability with which a one-sided t test of `rounds` values at `level` calls a difference where there is none,
// when they follow a first-order autoregression with `rho` in [0, 1): the variance of the mean is larger than s² / n
// says. Approximate: t's shape is taken to stay. REQUIRES rounds >= 2.
double LevelReached(double rho, int rounds, double level);

// The level to ask for so that `level` is reached. Not below config's least.
double LevelToAskFor(double rho, int rounds, double level);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_SERIAL_CORRELATION_H_
