#include "bench/measurements.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace keval::bench {
namespace {

// Four digits after the point are more than any of these figures bears.
double Rounded(double value) { return std::round(value * 1e4) / 1e4; }

}  // namespace

double Quantile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  const double place = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

nlohmann::ordered_json Summary(const std::vector<double>& values) {
  return {{"median", Rounded(Quantile(values, 0.5))},
          {"low", Rounded(Quantile(values, 0.25))},
          {"high", Rounded(Quantile(values, 0.75))},
          {"count", values.size()}};
}

nlohmann::ordered_json Absent(const std::string& why) { return {{"absent", why}}; }

}  // namespace keval::bench
