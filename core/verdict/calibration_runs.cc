#include "core/verdict/calibration_runs.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "core/verdict/margin.h"
#include "core/verdict/statistics.h"

namespace keval::verdict {
namespace {

constexpr double kGapFactor = 5;  // Of the usual time between rounds: a lost round or a job's start are no gap.

std::optional<double> StartSeconds(const CalibrationRound& round) {
  absl::Time time;
  if (!absl::ParseTime(absl::RFC3339_full, round.started, &time, nullptr)) return std::nullopt;
  return absl::ToDoubleSeconds(time - absl::UnixEpoch());
}

// Seconds from the start of the one to the start of the other; nothing where one isn't told.
std::optional<double> SecondsBetween(const CalibrationRound& first, const CalibrationRound& second) {
  const auto from = StartSeconds(first);
  const auto to = StartSeconds(second);
  if (!from.has_value() || !to.has_value()) return std::nullopt;
  return *to - *from;
}

bool AreNeighbours(const CalibrationRound& first, const CalibrationRound& second) {
  return first.effect == second.effect && first.session == second.session;
}

}  // namespace

std::map<double, Runs> SplitIntoRuns(absl::Span<const CalibrationRound> rounds) {
  std::vector<double> steps;
  for (std::size_t i = 1; i < rounds.size(); ++i) {
    const auto step = SecondsBetween(rounds[i - 1], rounds[i]);
    if (AreNeighbours(rounds[i - 1], rounds[i]) && step.has_value()) steps.push_back(*step);
  }
  const double longest = steps.empty() ? 0 : kGapFactor * Median(steps);
  std::map<double, Runs> by_effect;
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    Runs& runs = by_effect[rounds[i].effect];
    bool follows = i > 0 && AreNeighbours(rounds[i - 1], rounds[i]);
    if (follows) {
      const auto step = SecondsBetween(rounds[i - 1], rounds[i]);
      follows = !step.has_value() || (*step >= 0 && *step <= longest);
    }
    if (!follows) runs.emplace_back();
    runs.back().push_back({rounds[i].primary, rounds[i].control, {}});
  }
  return by_effect;
}

std::vector<double> AaMeans(absl::Span<const CalibrationRound> rounds) {
  std::vector<double> means;
  const auto by_effect = SplitIntoRuns(rounds);
  const auto aa = by_effect.find(0);
  if (aa == by_effect.end()) return means;
  for (const auto& run : aa->second) {
    std::vector<double> values(run.size());
    std::transform(run.begin(), run.end(), values.begin(), [](const JobRound& round) { return round.primary; });
    const auto of_run = CalibrationMeans(values);
    means.insert(means.end(), of_run.begin(), of_run.end());
  }
  return means;
}

int CountRounds(const Runs& runs) {
  std::size_t rounds = 0;
  for (const auto& run : runs) rounds += run.size();
  return static_cast<int>(rounds);
}

std::vector<absl::Span<const JobRound>> DisjointWindows(const Runs& runs, int size) {
  const auto step = static_cast<std::size_t>(size);
  std::vector<absl::Span<const JobRound>> windows;
  for (const auto& run : runs) {
    for (std::size_t i = 0; i + step <= run.size(); i += step) {
      windows.push_back(absl::MakeConstSpan(run).subspan(i, step));
    }
  }
  return windows;
}

BlockSource::BlockSource(const Runs& runs, int block) : runs_(runs), block_(static_cast<std::size_t>(block)) {
  std::vector<double> means;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    if (runs[run].size() < block_) continue;
    rounds_ += static_cast<int>(runs[run].size());
    for (std::size_t start = 0; start + block_ <= runs[run].size(); ++start) {
      starts_.emplace_back(run, start);
      double sum = 0;
      for (std::size_t i = start; i < start + block_; ++i) sum += runs[run][i].primary;
      means.push_back(sum / block);
    }
  }
  mean_ = Mean(means);
}

void BlockSource::DrawJob(int size, Draws* draws, std::vector<JobRound>* job) const {
  job->clear();
  const auto wanted = static_cast<std::size_t>(size);
  while (job->size() < wanted) {
    const auto& [run, start] = starts_[draws->Next(starts_.size())];
    for (std::size_t i = start; i < start + block_ && job->size() < wanted; ++i) job->push_back(runs_[run][i]);
  }
}

}  // namespace keval::verdict
