#include "server/report_noise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/number.h"
#include "core/measure/nvml.h"
#include "core/verdict/json.h"
#include "core/verdict/measured_series.h"
#include "core/verdict/statistics.h"

namespace keval::server {
namespace {

// A quarter of a core taken by others is more than what a machine does for itself.
constexpr double kNotableCores = 0.25;
constexpr const char* kEdges[] = {"before", "after"};

// Series, round, quad, position.
using BlockKey = std::tuple<std::string, int, int, int>;

// The mean of the clocks at the block's edges; 0 where one is missing.
double ClockOf(const Json& block) {
  double sum = 0;
  for (const char* edge : kEdges) {
    const Json& clock = block.at(edge).at("sm_clock_mhz");
    if (!clock.is_number() || !(clock.get<double>() > 0)) return 0;
    sum += clock.get<double>();
  }
  return sum / 2;
}

std::map<BlockKey, double> Clocks(const std::vector<RoundEvidence>& rounds) {
  std::map<BlockKey, double> clocks;
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    for (const Json& block : rounds[round].blocks) {
      clocks[{block.at("series").get<std::string>(), static_cast<int>(round), block.at("quad").get<int>(),
              block.at("pos").get<int>()}] = ClockOf(block);
    }
  }
  return clocks;
}

Json SeriesCycles(const verdict::MeasuredSeries& series, double least_mhz, double most_mhz) {
  constexpr double kMega = 1e6;
  std::vector<double> values;
  std::array<std::vector<double>, 2> medians;
  for (const verdict::MeasuredRound& round : series.rounds) {
    if (round.value.has_value()) values.push_back(*round.value);
    for (std::size_t arm = 0; arm < medians.size(); ++arm) {
      medians[arm].insert(medians[arm].end(), round.block_median_ns[arm].begin(), round.block_median_ns[arm].end());
    }
  }
  const double mean = verdict::Mean(values);
  return {{"L", verdict::NumberToJson(mean)},
          {"gain_pct", verdict::NumberToJson(100 * std::expm1(mean))},
          {"base_megacycles", verdict::NumberToJson(verdict::Median(medians[0]) / kMega)},
          {"candidate_megacycles", verdict::NumberToJson(verdict::Median(medians[1]) / kMega)},
          {"least_mhz", verdict::NumberToJson(least_mhz)},
          {"most_mhz", verdict::NumberToJson(most_mhz)}};
}

// What the readings of all blocks come to.
struct Sightings {
  int blocks = 0;
  int told = 0;  // Blocks at whose edges the device told its processes.
  int seen = 0;  // Of these, with others than ours.
  int most = 0;
  std::map<std::string, std::map<std::string, int>> reasons;  // By arm: blocks by reason.
};

void AddBlock(const Json& block, Sightings* sightings) {
  ++sightings->blocks;
  int others = -1;
  std::uint64_t reasons = 0;
  for (const char* edge : kEdges) {
    const Json& reading = block.at(edge);
    const Json& processes = reading.at("other_processes");
    if (processes.is_number_integer()) others = std::max(others, processes.get<int>());
    reasons |= reading.at("throttle_reasons").get<std::uint64_t>();
  }
  reasons |= block.value("throttle_reasons_between", std::uint64_t{0});  // A job of an older server has none.
  sightings->told += others >= 0 ? 1 : 0;
  sightings->seen += others > 0 ? 1 : 0;
  sightings->most = std::max(sightings->most, others);
  auto& counts = sightings->reasons[block.at("arm").get<std::string>()];
  if (reasons == 0) return;
  const std::string text = measure::ThrottleReasonsText(reasons);
  for (const absl::string_view reason : absl::StrSplit(text, ", ")) ++counts[std::string(reason)];
}

Sightings Look(const std::vector<RoundEvidence>& rounds) {
  Sightings sightings;
  sightings.reasons = {{"A", {}}, {"B", {}}};
  for (const RoundEvidence& round : rounds) {
    for (const Json& block : round.blocks) AddBlock(block, &sightings);
  }
  return sightings;
}

}  // namespace

std::map<std::string, Json> CyclesJson(const std::vector<verdict::Sample>& samples,
                                       const std::vector<RoundEvidence>& rounds) {
  constexpr double kNsPerMicrosecond = 1e3;
  const std::map<BlockKey, double> clocks = Clocks(rounds);
  std::vector<verdict::Sample> cycles = samples;
  std::map<std::string, std::pair<double, double>> range;  // By series; a least clock of 0: one is missing.
  for (verdict::Sample& sample : cycles) {
    const auto found = clocks.find({sample.series, sample.round, sample.quad, sample.pos});
    const double mhz = found == clocks.end() ? 0 : found->second;
    const auto [entry, first] = range.emplace(sample.series, std::pair(mhz, mhz));
    entry->second = {std::min(entry->second.first, mhz), std::max(entry->second.second, mhz)};
    if (mhz > 0) {
      sample.ns = std::max<std::int64_t>(1, std::llround(static_cast<double>(sample.ns) * mhz / kNsPerMicrosecond));
    }
  }
  std::map<std::string, Json> out;
  const auto measured =
      verdict::MeasureSeries(cycles, [](std::size_t index) { return absl::StrCat("sample ", index); });
  if (!measured.ok()) return out;  // The samples themselves are refused elsewhere, with the reason.
  for (const verdict::MeasuredSeries& series : *measured) {
    const auto& [least, most] = range[series.name];
    if (least > 0) out[series.name] = SeriesCycles(series, least, most);
  }
  return out;
}

Json NoiseJson(const std::vector<RoundEvidence>& rounds) {
  const Sightings sightings = Look(rounds);
  double most_cores = std::nan("");
  for (const RoundEvidence& round : rounds) most_cores = std::fmax(most_cores, round.foreign_cpu_cores);
  return {{"blocks", sightings.blocks},
          {"other_processes", {{"told", sightings.told}, {"seen", sightings.seen}, {"most", sightings.most}}},
          {"throttle_reasons", {{"A", sightings.reasons.at("A")}, {"B", sightings.reasons.at("B")}}},
          {"most_foreign_cpu_cores", std::isnan(most_cores) ? Json(nullptr) : verdict::NumberToJson(most_cores)}};
}

std::vector<std::string> NoiseNotes(const std::vector<RoundEvidence>& rounds, bool cpu) {
  std::vector<std::string> notes;
  const Sightings sightings = Look(rounds);
  if (sightings.seen > 0) {
    notes.push_back(absl::StrCat("Other processes had a context on the device at ", sightings.seen, " of ",
                                 sightings.blocks, " blocks, at most ", sightings.most,
                                 " at once: times may hold their work."));
  }
  if (!cpu && sightings.blocks > sightings.told) {
    notes.push_back(absl::StrCat("At ", sightings.blocks - sightings.told, " of ", sightings.blocks,
                                 " blocks the device did not tell which processes use it."));
  }
  std::vector<std::string> loaded;
  double most = 0;
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    if (!(rounds[round].foreign_cpu_cores >= kNotableCores)) continue;
    loaded.push_back(absl::StrCat(round));
    most = std::max(most, rounds[round].foreign_cpu_cores);
  }
  if (cpu && !loaded.empty()) {
    notes.push_back(absl::StrCat("Other processes kept up to ", FixedText(most, 2), " cores busy during round(s) ",
                                 absl::StrJoin(loaded, ", "), ": times may hold their work."));
  }
  return notes;
}

}  // namespace keval::server
