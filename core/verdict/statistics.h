// The statistics that the verdict needs, over plain numbers.
#ifndef KEVAL_CORE_VERDICT_STATISTICS_H_
#define KEVAL_CORE_VERDICT_STATISTICS_H_

#include <vector>

#include "absl/types/span.h"

namespace keval::verdict {

// The value of Student's t that is exceeded with probability 1 - p. `df` ≥ 1, `p` in (0, 1).
double TQuantile(int df, double p);

// One-sided p of "greater than 0" and "less than 0" for a mean with standard error `se` ≥ 0: where se is 0 they are
// 0, 0.5 or 1 by the mean's sign. NaN where a figure is NaN or `df` < 1.
struct OneSidedP {
  double gain = 0;
  double loss = 0;
};
OneSidedP TTest(double mean, double se, int df);

// Two-sided p of `a` against `b` events under equal chances; 1 where there are none.
double BinomialTwoSidedP(int a, int b);

// A share of independent trials: what was seen, and the exact 95 % interval of Clopper and Pearson. Without trials
// `rate` is NaN and the interval [0, 1].
struct Proportion {
  int count = 0;
  int trials = 0;
  double rate = 0;
  double lo = 0;
  double hi = 1;
};
// REQUIRES 0 <= count <= trials.
Proportion ClopperPearson(int count, int trials);

// The same where the trials aren't independent and tell as much as `independent` of them would, at most all: the
// interval is as wide as that. REQUIRES independent >= 0.
Proportion DependentProportion(int count, int trials, double independent);
// The least number of independent trials, in the share's present failures and however many successes more, whose
// interval lies in [least, most]: failures are what is counted where `least` is 0, what isn't where `most` is 1. Where
// both bound it: for a share halfway between them. At most 1e7.
double TrialsNeeded(double failures, double least, double most);

// NaN for no values.
double Mean(absl::Span<const double> values);
// With n - 1; NaN for fewer than two.
double SampleSd(absl::Span<const double> values);
// Even count: mean of the middle two. NaN for no values.
double Median(std::vector<double> values);
// Nearest rank: the least value that at least the share `p` of them doesn't exceed. NaN for no values.
double Percentile(std::vector<double> values, double p);
// Median of the means of all pairs, each value paired with itself too. NaN for no values.
double HodgesLehmann(absl::Span<const double> values);

// Holm's adjusted p, in the order given: running maximum of (m - i + 1)·p₍ᵢ₎, at most 1; ties keep their order. A NaN
// counts as 1 and stays NaN.
std::vector<double> HolmAdjust(absl::Span<const double> p);

// Which hypotheses Holm's step-down rejects at `level`: sorted ascending, while p₍ᵢ₎ ≤ level/(m - i + 1). A NaN is
// never rejected, but counts in m.
std::vector<bool> HolmReject(absl::Span<const double> p, double level);

// ⌈share·n⌉, not led astray by share·n being a rounding above a whole number.
int CeilShare(double share, int n);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_STATISTICS_H_
