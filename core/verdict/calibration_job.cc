#include "core/verdict/calibration_job.h"

#include <string>
#include <utility>

#include "core/verdict/verdict.h"

namespace keval::verdict {
namespace {

void AddRound(double value, MeasuredSeries* series) {
  MeasuredRound round;
  round.round = static_cast<int>(series->rounds.size());
  round.quad_values = {value};
  round.value = value;
  round.mean_ratio_log = value;
  series->rounds.push_back(std::move(round));
}

Call CallOf(const Outcome& outcome) {
  switch (outcome.rule) {
    case Rule::kImproved:
      return Call::kImproved;
    case Rule::kEquivalent:
      return Call::kEquivalent;
    case Rule::kRegressed:
      return Call::kRegressed;
    case Rule::kControl:
      return Call::kControlFailed;
    default:
      return Call::kUndecided;
  }
}

}  // namespace

Decided DecideJob(absl::Span<const JobRound> rounds, const Config& config) {
  std::vector<MeasuredSeries> series = {{.name = "primary", .role = Role::kPrimary},
                                        {.name = "control", .role = Role::kControl}};
  if (!rounds.empty() && rounds.front().guard.has_value()) series.push_back({.name = "guard", .role = Role::kGuard});
  for (const JobRound& round : rounds) {
    AddRound(round.primary, &series.front());
    AddRound(round.control, &series[1]);
    if (round.guard.has_value()) AddRound(*round.guard, &series[2]);
  }
  const Outcome outcome = DecideMeasured(series, config);
  return {CallOf(outcome), outcome.stop_look.value_or(static_cast<int>(rounds.size()))};
}

}  // namespace keval::verdict
