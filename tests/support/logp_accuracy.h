// C2 of logp where hidden_size is large: what a float32 product that adds its terms one after the other gives
// (docs/adr/0004).
#ifndef KEVAL_TESTS_SUPPORT_LOGP_ACCURACY_H_
#define KEVAL_TESTS_SUPPORT_LOGP_ACCURACY_H_

#include <cstdint>
#include <string>
#include <vector>

namespace keval::test_support {

struct LogpAccuracy {
  std::int64_t tokens = 0;
  double limit = 0;       // C2's: 8 * 2^-24 * max(1, max |logit|, max |logp|).
  double growth = 1;      // max(1, sqrt(hidden_size / 2048)): of a sequential sum's error where C2 still nearly holds.
  double hard_limit = 0;  // limit * max(1, sqrt(hidden_size / 512)).
  double rms = 0;
  double largest = 0;       // A NaN stays one.
  std::int64_t beyond = 0;  // Tokens beyond limit * growth.
};

// REQUIRES: `got` and `want` of one size.
LogpAccuracy MeasureLogp(const std::vector<double>& got, const std::vector<double>& want, double max_abs_logit,
                         std::int64_t hidden_size);

// A sentence with the figures where the rule is broken; empty where it holds: rms at most a quarter of limit * growth,
// at most one token in 500 beyond limit * growth, none beyond hard_limit. Up to hidden_size 512 that is C2 itself and
// more.
std::string ProblemWith(const LogpAccuracy& accuracy);

}  // namespace keval::test_support

#endif  // KEVAL_TESTS_SUPPORT_LOGP_ACCURACY_H_
