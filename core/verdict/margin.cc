#include "core/verdict/margin.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "core/verdict/statistics.h"

namespace keval::verdict {
namespace {

constexpr double kDefaultMargin = 0.01;
constexpr double kLeastMargin = 0.005;
constexpr double kMostMargin = 0.02;

}  // namespace

std::vector<double> CalibrationMeans(absl::Span<const double> D) {
  std::vector<double> means;
  constexpr std::size_t kRounds = kCalibrationRounds;
  for (std::size_t i = 0; i + kRounds <= D.size(); i += kRounds) means.push_back(Mean(D.subspan(i, kRounds)));
  return means;
}

double CalibratedMargin(absl::Span<const double> means) {
  if (means.empty()) return kDefaultMargin;
  std::vector<double> sizes;
  for (const double mean : means) sizes.push_back(std::abs(mean));
  return std::clamp(2 * Percentile(std::move(sizes), 0.95), kLeastMargin, kMostMargin);
}

}  // namespace keval::verdict
