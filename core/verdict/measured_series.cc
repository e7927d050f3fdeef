#include "core/verdict/measured_series.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/field_error.h"
#include "base/text.h"
#include "core/verdict/statistics.h"

namespace keval::verdict {
namespace {

constexpr std::size_t kBlocksOfQuad = 4;
constexpr int kTrimmedFrom = 5;  // With as many valid quads the least and the greatest are left out.
constexpr int kValuedFrom = 3;   // With fewer valid quads a round has no value.

// Rows [begin, end) of the sorted order.
using Rows = absl::Span<const std::size_t>;

// Sorts, checks and reduces one set of samples; lives for one call of MeasureSeries.
class Grouping {
 public:
  Grouping(const std::vector<Sample>& samples, const RowName& row_name) : samples_(samples), row_name_(row_name) {}

  absl::StatusOr<std::vector<MeasuredSeries>> Run() {
    if (absl::Status status = NumberSeries(); !status.ok()) return status;
    Sort();
    if (absl::Status status = RefuseDuplicates(); !status.ok()) return status;
    repetitions_.assign(series_.size(), 0);
    const Rows all(order_);
    for (std::size_t begin = 0; begin < all.size();) {
      std::size_t end = begin;
      while (end < all.size() && SameQuad(all[begin], all[end])) ++end;
      if (absl::Status status = AddQuad(all.subspan(begin, end - begin)); !status.ok()) return status;
      begin = end;
    }
    for (MeasuredSeries& series : series_) {
      for (MeasuredRound& round : series.rounds) Finish(&round);
    }
    return std::move(series_);
  }

 private:
  absl::Status Refuse(std::size_t row, absl::string_view why) const {
    const std::string name = row_name_(row);
    return WithField(absl::InvalidArgumentError(absl::StrCat("samples: ", name, ": ", why)),
                     {.field = "samples", .value = name, .limit = std::string(why)});
  }

  std::string Where(const Sample& sample) const {
    return absl::StrCat("series ", PrintableText(sample.series, 256), ", round ", sample.round, ", quad ", sample.quad);
  }

  absl::Status NumberSeries() {
    absl::flat_hash_map<std::string, std::size_t> numbers;
    series_of_.reserve(samples_.size());
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      const Sample& sample = samples_[i];
      if (sample.ns <= 0) return Refuse(i, absl::StrCat("ns ", sample.ns, " must be positive"));
      if (sample.arm != 'A' && sample.arm != 'B') return Refuse(i, "arm must be A or B");
      if (sample.pos < 0 || sample.pos >= static_cast<int>(kBlocksOfQuad)) {
        return Refuse(i, absl::StrCat("pos ", sample.pos, " must be in [0, 3]"));
      }
      // Rows of a series stand together in every file of ours; the map is for those that don't.
      if (i > 0 && sample.series == samples_[i - 1].series) {
        series_of_.push_back(series_of_.back());
      } else {
        const auto [found, is_new] = numbers.try_emplace(sample.series, series_.size());
        if (is_new) series_.push_back({.name = sample.series, .role = sample.role});
        series_of_.push_back(found->second);
      }
      if (sample.role != series_[series_of_.back()].role) {
        return Refuse(i, absl::StrCat("series ", PrintableText(sample.series, 256), " has role ", RoleName(sample.role),
                                      " here and ", RoleName(series_[series_of_.back()].role), " before"));
      }
    }
    return absl::OkStatus();
  }

  auto Key(std::size_t row) const {
    const Sample& sample = samples_[row];
    return std::tuple(series_of_[row], sample.round, sample.quad, sample.pos, sample.rep);
  }

  void Sort() {
    order_.resize(samples_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    const auto less = [this](std::size_t a, std::size_t b) { return Key(a) < Key(b); };
    if (!std::is_sorted(order_.begin(), order_.end(), less)) std::stable_sort(order_.begin(), order_.end(), less);
  }

  absl::Status RefuseDuplicates() const {
    for (std::size_t i = 1; i < order_.size(); ++i) {
      if (Key(order_[i - 1]) != Key(order_[i])) continue;
      const Sample& sample = samples_[order_[i]];
      return Refuse(order_[i], absl::StrCat("repeats ", row_name_(order_[i - 1]), " (", Where(sample), ", pos ",
                                            sample.pos, ", rep ", sample.rep, ")"));
    }
    return absl::OkStatus();
  }

  bool SameQuad(std::size_t a, std::size_t b) const {
    const Sample& left = samples_[a];
    const Sample& right = samples_[b];
    return series_of_[a] == series_of_[b] && left.round == right.round && left.quad == right.quad;
  }

  // The rows of a quad by its four blocks; an error where one is missing, mixes arms or differs in repetitions.
  absl::StatusOr<std::array<Rows, kBlocksOfQuad>> SplitBlocks(Rows rows) {
    const Sample& first = samples_[rows.front()];
    std::array<Rows, kBlocksOfQuad> blocks;
    for (std::size_t begin = 0; begin < rows.size();) {
      const Sample& head = samples_[rows[begin]];
      std::size_t end = begin;
      for (; end < rows.size() && samples_[rows[end]].pos == head.pos; ++end) {
        const Sample& sample = samples_[rows[end]];
        if (sample.arm != head.arm) return Refuse(rows[end], "a block has rows of both arms");
        if (sample.rep != static_cast<int>(end - begin)) {
          return Refuse(rows[end], absl::StrCat("rep ", end - begin, " is missing before rep ", sample.rep, " (",
                                                Where(sample), ", pos ", sample.pos, ")"));
        }
      }
      blocks.at(static_cast<std::size_t>(head.pos)) = rows.subspan(begin, end - begin);
      begin = end;
    }
    for (std::size_t pos = 0; pos < kBlocksOfQuad; ++pos) {
      if (blocks.at(pos).empty()) {
        return Refuse(rows.front(), absl::StrCat("the quad lacks its block at pos ", pos, " (", Where(first), ")"));
      }
    }
    const auto arm = [&](std::size_t pos) { return samples_[blocks.at(pos).front()].arm; };
    if (arm(0) != arm(3) || arm(1) != arm(2) || arm(0) == arm(1)) {
      const std::string order = {arm(0), arm(1), arm(2), arm(3)};
      return Refuse(rows.front(),
                    absl::StrCat("the quad's arms are ", order, ", not ABBA or BAAB (", Where(first), ")"));
    }
    std::size_t& repetitions = repetitions_[series_of_[rows.front()]];
    if (repetitions == 0) repetitions = blocks[0].size();
    for (const Rows& block : blocks) {
      if (block.size() == repetitions) continue;
      return Refuse(block.back(),
                    absl::StrCat("the block has ", block.size(), " repetitions where the series began with ",
                                 repetitions, " (", Where(first), ", pos ", samples_[block[0]].pos, ")"));
    }
    return blocks;
  }

  absl::Status AddQuad(Rows rows) {
    const auto blocks = SplitBlocks(rows);
    if (!blocks.ok()) return blocks.status();
    const Sample& first = samples_[rows.front()];
    MeasuredSeries& series = series_[series_of_[rows.front()]];
    if (series.rounds.empty() || series.rounds.back().round != first.round) {
      series.rounds.push_back({.round = first.round});
    }
    MeasuredRound& round = series.rounds.back();
    ++round.quads;
    bool throttled = false;
    for (const Rows& block : *blocks) {
      if (std::none_of(block.begin(), block.end(), [this](std::size_t row) { return samples_[row].throttled; })) {
        continue;
      }
      throttled = true;
      ++round.throttled_blocks.at(samples_[block.front()].arm == 'A' ? 0 : 1);
    }
    if (throttled) {
      ++round.quads_dropped;
      return absl::OkStatus();
    }
    double value = 0;
    for (const Rows& block : *blocks) {
      const std::size_t arm = samples_[block.front()].arm == 'A' ? 0 : 1;
      std::vector<double> logs;
      std::vector<double> times;
      for (const std::size_t row : block) {
        times.push_back(static_cast<double>(samples_[row].ns));
        logs.push_back(std::log(times.back()));
      }
      value += (arm == 0 ? 0.5 : -0.5) * Median(std::move(logs));
      auto& all = round.times_ns.at(arm);
      all.insert(all.end(), times.begin(), times.end());
      round.block_median_ns.at(arm).push_back(Median(std::move(times)));
    }
    round.quad_values.push_back(value);
    return absl::OkStatus();
  }

  static void Finish(MeasuredRound* round) {
    const auto sum = [](const std::vector<double>& times) { return std::accumulate(times.begin(), times.end(), 0.0); };
    round->mean_ratio_log = round->quad_values.empty() ? std::numeric_limits<double>::quiet_NaN()
                                                       : std::log(sum(round->times_ns[0]) / sum(round->times_ns[1]));
    std::vector<double> values = round->quad_values;
    const int valid = static_cast<int>(values.size());
    if (valid < kValuedFrom) return;
    std::sort(values.begin(), values.end());
    absl::Span<const double> kept(values);
    if (valid >= kTrimmedFrom) kept = kept.subspan(1, kept.size() - 2);
    round->value = Mean(kept);
  }

  const std::vector<Sample>& samples_;
  const RowName& row_name_;
  std::vector<MeasuredSeries> series_;
  std::vector<std::size_t> series_of_;    // By sample.
  std::vector<std::size_t> order_;        // Samples by series, round, quad, pos, rep.
  std::vector<std::size_t> repetitions_;  // By series; 0: not seen yet.
};

}  // namespace

absl::StatusOr<std::vector<MeasuredSeries>> MeasureSeries(const std::vector<Sample>& samples, const RowName& row_name) {
  return Grouping(samples, row_name).Run();
}

}  // namespace keval::verdict
