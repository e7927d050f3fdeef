#include "core/verdict/summary.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/verdict/measured_series.h"
#include "core/verdict/statistics.h"

namespace keval::verdict {
namespace {

constexpr double kNsPerMs = 1e6;

std::string StatusOf(const SeriesLook& series) {
  if (series.is_short) return "short";
  if (series.role == Role::kControl) {
    if (series.control_failed) return "failed";
    return series.control_shown ? "shown" : "not_shown";
  }
  if (series.regressed) return "regressed";
  if (series.improved) return "improved";
  if (series.equivalent) return "equivalent";
  return series.non_inferior ? "non_inferior" : "inconclusive";
}

// Every round there is, judged at the first look's levels.
Look LookAtEverything(const std::vector<MeasuredSeries>& series, Config config) {
  int rounds = 2;
  for (const MeasuredSeries& one : series) {
    if (!one.rounds.empty()) rounds = std::max(rounds, one.rounds.back().round + 1);
  }
  config.looks.front() = rounds;
  return TakeLook(series, config, 0);
}

void CountBlocks(const MeasuredSeries& series, SeriesSummary* summary) {
  std::array<std::vector<double>, 2> blocks;
  for (const MeasuredRound& round : series.rounds) {
    summary->quads += round.quads;
    summary->quads_dropped += round.quads_dropped;
    for (std::size_t arm = 0; arm < 2; ++arm) {
      summary->throttled_blocks.at(arm) += round.throttled_blocks.at(arm);
      const std::vector<double>& medians = round.block_median_ns.at(arm);
      blocks.at(arm).insert(blocks.at(arm).end(), medians.begin(), medians.end());
    }
  }
  summary->base_ms = Median(std::move(blocks[0])) / kNsPerMs;
  summary->candidate_ms = Median(std::move(blocks[1])) / kNsPerMs;
}

}  // namespace

absl::StatusOr<std::vector<SeriesSummary>> Summarize(const std::vector<Sample>& samples, const Config& config,
                                                     const Outcome& outcome) {
  if (absl::Status status = ValidateConfig(config); !status.ok()) return status;
  const auto series = MeasureSeries(samples, [](std::size_t i) { return absl::StrCat("sample ", i + 1); });
  if (!series.ok()) return series.status();
  const bool has_look = !outcome.looks.empty();
  const Look look = has_look ? outcome.looks.back() : LookAtEverything(*series, config);
  std::vector<SeriesSummary> summaries;
  for (std::size_t i = 0; i < series->size(); ++i) {
    SeriesSummary summary{.look = look.series[i], .status = has_look ? StatusOf(look.series[i]) : "no_look"};
    CountBlocks((*series)[i], &summary);
    summaries.push_back(std::move(summary));
  }
  return summaries;
}

}  // namespace keval::verdict
