#include "tests/support/logp_accuracy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/number.h"

namespace keval::test_support {
namespace {

// A logit of deviation s is the last of D partial sums, of deviation s sqrt(k / D), each rounded by 0.41 * 2^-24 of
// itself (rms): together 0.29 * 2^-24 s sqrt(D). C2's limit doesn't know D: at 8 * 2^-24 * 20, for logits of deviation
// 2, one sum of about 2000 is beyond it at D = 2048, and one of 40,000 at 512.
constexpr double kWidthOfC2 = 2048;
constexpr double kWidthOfC2WithoutException = 512;
constexpr std::int64_t kTokensForOneBeyond = 500;

double Growth(std::int64_t hidden_size, double from) {
  return std::max(1.0, std::sqrt(static_cast<double>(hidden_size) / from));
}

}  // namespace

LogpAccuracy MeasureLogp(const std::vector<double>& got, const std::vector<double>& want, double max_abs_logit,
                         std::int64_t hidden_size) {
  LogpAccuracy result;
  result.tokens = static_cast<std::int64_t>(want.size());
  double scale = std::max(1.0, max_abs_logit);
  for (const double logp : want) scale = std::max(scale, std::abs(logp));
  result.limit = 8 * std::ldexp(1.0, -24) * scale;
  result.growth = Growth(hidden_size, kWidthOfC2);
  result.hard_limit = result.limit * Growth(hidden_size, kWidthOfC2WithoutException);
  double squares = 0;
  for (std::size_t token = 0; token < want.size(); ++token) {
    const double error = std::abs(got[token] - want[token]);
    squares += error * error;
    if (std::isnan(error) || error > result.largest) result.largest = error;
    if (!(error <= result.limit * result.growth)) ++result.beyond;
  }
  if (result.tokens > 0) result.rms = std::sqrt(squares / static_cast<double>(result.tokens));
  return result;
}

std::string ProblemWith(const LogpAccuracy& accuracy) {
  const double limit = accuracy.limit * accuracy.growth;
  if (accuracy.rms <= limit / 4 && accuracy.beyond <= accuracy.tokens / kTokensForOneBeyond &&
      accuracy.largest <= accuracy.hard_limit) {
    return "";
  }
  return absl::StrCat("logp: rms ", DoubleText(accuracy.rms), " against ", DoubleText(limit / 4), "; ", accuracy.beyond,
                      " of ", accuracy.tokens, " tokens beyond ", DoubleText(limit), "; largest ",
                      DoubleText(accuracy.largest), " against ", DoubleText(accuracy.hard_limit));
}

}  // namespace keval::test_support
