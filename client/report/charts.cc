#include "client/report/charts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/number.h"
#include "base/text.h"
#include "client/report/svg.h"

namespace keval::report {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLeft = 14;
constexpr double kRight = kSvgWidth - 14;

// A difference in ln units as a gain in percent.
double Percent(double ln_ratio) { return 100 * std::expm1(ln_ratio); }

std::optional<double> Finite(const Json& object, absl::string_view key) {
  const auto value = NumberOf(object, key);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::string PercentTick(double value, int digits) {
  return absl::StrCat(value > 0 ? "+" : "", FixedText(value, digits), " %");
}

Svg::Marker MarkerOf(const std::string& role) {
  if (role == "primary") return Svg::Marker::kSquare;
  return role == "guard" ? Svg::Marker::kDisc : Svg::Marker::kDiamond;
}

// What the forest shows of a series, in percent.
struct ForestRow {
  const Json* series = nullptr;
  std::optional<double> gain;
  std::optional<double> low;
  std::optional<double> high;
  std::optional<double> margin;  // In ln units.
};

std::vector<ForestRow> ForestRows(const Json& report) {
  std::vector<ForestRow> rows;
  for (const Json& series : ListOf(report, "series")) {
    rows.push_back({&series, Finite(series, "gain_pct"), Finite(series, "gain_lo_pct"), Finite(series, "gain_hi_pct"),
                    Finite(series, "delta")});
  }
  return rows;
}

// Wide enough for every gain and margin; of the intervals, those of a few rounds may be far wider, and go on as arrows.
Scale ForestScale(const std::vector<ForestRow>& rows) {
  double low = 0;
  double high = 0;
  double reach = 0.5;
  for (const ForestRow& row : rows) {
    const double margin = row.margin ? Percent(*row.margin) : 0;
    const double gain = row.gain.value_or(0);
    low = std::min({low, gain, -margin});
    high = std::max({high, gain, margin});
    reach = std::max({reach, 4 * margin, 2 * std::abs(gain)});
  }
  for (const ForestRow& row : rows) {
    low = std::min(low, std::max(row.low.value_or(0), -reach));
    high = std::max(high, std::min(row.high.value_or(0), reach));
  }
  const double pad = 0.06 * (high - low);
  return {low - pad, high + pad, kLeft, kRight};
}

void DrawInterval(const ForestRow& row, const Scale& scale, double y, Svg* svg) {
  constexpr double kCap = 4;
  const double low = std::max(*row.low, scale.low());
  const double high = std::min(*row.high, scale.high());
  svg->Line(scale.At(low), y, scale.At(high), y, Svg::Stroke::kThick);
  if (low > *row.low) {
    svg->Arrow(scale.At(low) - 2, y, false);
  } else {
    svg->Line(scale.At(low), y - kCap, scale.At(low), y + kCap, Svg::Stroke::kSolid);
  }
  if (high < *row.high) {
    svg->Arrow(scale.At(high) + 2, y, true);
  } else {
    svg->Line(scale.At(high), y - kCap, scale.At(high), y + kCap, Svg::Stroke::kSolid);
  }
}

void DrawAxis(const Scale& scale, const Scale::Ticks& ticks, double y, Svg* svg) {
  svg->Line(kLeft, y, kRight, y, Svg::Stroke::kSolid);
  for (const double value : ticks.values) {
    const double x = scale.At(value);
    svg->Line(x, y, x, y + 4, Svg::Stroke::kSolid);
    svg->Text(std::clamp(x, kLeft + 8, kRight - 14), y + 15, PercentTick(value, ticks.digits), Svg::Anchor::kMiddle,
              10);
  }
}

std::string ForestFigures(const ForestRow& row) {
  std::string text = TextOf(*row.series, "role");
  if (const std::string status = TextOf(*row.series, "status"); !status.empty()) absl::StrAppend(&text, " · ", status);
  if (row.gain) absl::StrAppend(&text, " · ", PercentOf(*row.series, "gain_pct"));
  if (row.low && row.high) {
    absl::StrAppend(&text, " [", PercentOf(*row.series, "gain_lo_pct"), ", ", PercentOf(*row.series, "gain_hi_pct"),
                    "]");
  }
  return text;
}

// A panel's frame: a title, a scale with its ticks at the left, and where the values go.
struct Panel {
  double top;
  double bottom;
  Scale y;
};

constexpr double kPanelLeft = 58;

Panel OpenPanel(double top, double height, double low, double high, absl::string_view unit, Svg* svg) {
  constexpr int kTicks = 3;
  const double pad = high > low ? 0.1 * (high - low) : 0;
  Panel panel{top, top + height, Scale(low - pad, high + pad, top + height, top)};
  const Scale::Ticks ticks = panel.y.TicksFor(kTicks);
  for (const double value : ticks.values) {
    const double y = panel.y.At(value);
    svg->Line(kPanelLeft, y, kRight, y, Svg::Stroke::kFaint);
    const std::string text = unit == "%" ? PercentTick(value, ticks.digits)
                                         : absl::StrCat(FixedText(value, ticks.digits), unit.empty() ? "" : " ", unit);
    svg->Text(kPanelLeft - 4, y + 3.5, text, Svg::Anchor::kEnd, 10);
  }
  svg->Line(kPanelLeft, panel.top, kPanelLeft, panel.bottom, Svg::Stroke::kSolid);
  return panel;
}

// The height it took.
double DrawRounds(const Json& series, double top, Svg* svg) {
  constexpr double kHeight = 62;
  constexpr double kWhole = 90;
  constexpr double kNothing = 24;
  constexpr double kFar = 4;
  std::vector<std::pair<double, double>> values;  // Round, percent.
  const Json& differences = ListOf(series, "D");
  const Json& numbers = ListOf(series, "rounds");
  for (std::size_t i = 0; i < differences.size(); ++i) {
    const auto value = NumberOf(differences[i]);
    const auto round = i < numbers.size() ? NumberOf(numbers[i]) : std::optional(static_cast<double>(i));
    if (value && round && std::isfinite(*value)) values.emplace_back(*round, Percent(*value));
  }
  if (values.empty()) {
    svg->Text(kPanelLeft, top + 10, "no round has a value", Svg::Anchor::kStart, 10);
    return kNothing;
  }
  double low = kInfinity;
  double high = -kInfinity;
  for (const auto& [round, percent] : values) {
    low = std::min(low, percent);
    high = std::max(high, percent);
  }
  // Zero is shown unless it is so far away that the rounds could not be told apart.
  if (std::max(low, -high) < kFar * (high - low) || high == low) {
    low = std::min(low, 0.0);
    high = std::max(high, 0.0);
  }
  const Panel panel = OpenPanel(top, kHeight, low, high, "%", svg);
  const Scale x(values.front().first, values.back().first, kPanelLeft + 12, kRight - 8);
  if (panel.y.Holds(0)) svg->Line(kPanelLeft, panel.y.At(0), kRight, panel.y.At(0), Svg::Stroke::kSolid);
  if (const auto mean = Finite(series, "gain_pct"); mean && panel.y.Holds(*mean)) {
    svg->Line(kPanelLeft, panel.y.At(*mean), kRight, panel.y.At(*mean), Svg::Stroke::kDashed);
  }
  for (const auto& [round, percent] : values) {
    svg->Mark(percent > 0 ? Svg::Marker::kDisc : Svg::Marker::kRing, x.At(round), panel.y.At(percent));
  }
  svg->Text(x.At(values.front().first), panel.bottom + 12, absl::StrCat("round ", FixedText(values.front().first, 0)),
            Svg::Anchor::kMiddle, 10);
  if (values.size() > 1) {
    svg->Text(x.At(values.back().first), panel.bottom + 12, FixedText(values.back().first, 0), Svg::Anchor::kMiddle,
              10);
  }
  return kWhole;
}

// Mean of a reading at a block's edges.
std::optional<double> ReadingOf(const Json& block, absl::string_view key) {
  const auto before = Finite(Member(block, "before"), key);
  const auto after = Finite(Member(block, "after"), key);
  if (before && after) return (*before + *after) / 2;
  return before ? before : after;
}

// A reading by block, in as many columns as can be told apart: the line goes through the mean of each, and a faint one
// spans its least and greatest.
bool DrawReading(const Json& blocks, absl::string_view key, absl::string_view title, absl::string_view unit, double top,
                 Svg* svg) {
  constexpr double kHeight = 62;
  constexpr std::size_t kColumns = 170;
  struct Column {
    double sum = 0, least = kInfinity, greatest = -kInfinity;
    int count = 0;
  };
  std::vector<Column> columns(std::min(kColumns, blocks.size()));
  double low = kInfinity;
  double high = -kInfinity;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto value = ReadingOf(blocks[i], key);
    if (!value) continue;
    Column& column = columns[i * columns.size() / blocks.size()];
    column.sum += *value;
    ++column.count;
    column.least = std::min(column.least, *value);
    column.greatest = std::max(column.greatest, *value);
    low = std::min(low, *value);
    high = std::max(high, *value);
  }
  if (low > high) return false;
  svg->Text(kLeft, top + 11, title);
  const Panel panel = OpenPanel(top + 18, kHeight, low, high, unit, svg);
  const Scale x(0, static_cast<double>(columns.size()), kPanelLeft, kRight);
  std::vector<std::pair<double, double>> line;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].count == 0) continue;
    const double at = x.At(static_cast<double>(i) + 0.5);
    svg->Line(at, panel.y.At(columns[i].least), at, panel.y.At(columns[i].greatest), Svg::Stroke::kFaint);
    line.emplace_back(at, panel.y.At(columns[i].sum / columns[i].count));
  }
  svg->Path(line);
  const Scale order(0, static_cast<double>(blocks.size()), kPanelLeft, kRight);
  std::string round;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::string now = TextOf(blocks[i], "round");
    if (i > 0 && now != round) {
      const double at = order.At(static_cast<double>(i));
      svg->Line(at, panel.bottom, at, panel.bottom + 5, Svg::Stroke::kSolid);
    }
    round = now;
  }
  return true;
}

// Where the device tells nothing: cores that others kept busy, by round.
bool DrawForeignLoad(const Json& report, double top, Svg* svg) {
  constexpr double kHeight = 62;
  std::vector<std::pair<double, double>> values;
  double most = 0;
  for (const Json& round : ListOf(report, "rounds")) {
    const auto number = Finite(round, "round");
    const auto cores = Finite(round, "foreign_cpu_cores");
    if (!number || !cores) continue;
    values.emplace_back(*number, *cores);
    most = std::max(most, *cores);
  }
  if (values.empty()) return false;
  svg->Text(kLeft, top + 11, "cores kept busy by other processes, by round");
  const Panel panel = OpenPanel(top + 18, kHeight, 0, std::max(most, 0.5), "", svg);
  const Scale x(values.front().first, values.back().first, kPanelLeft + 12, kRight - 8);
  for (const auto& [round, cores] : values) {
    svg->Line(x.At(round), panel.y.At(0), x.At(round), panel.y.At(cores), Svg::Stroke::kThick);
    svg->Mark(Svg::Marker::kDisc, x.At(round), panel.y.At(cores));
  }
  return true;
}

}  // namespace

std::string ForestChart(const Json& report) {
  constexpr double kRow = 48;
  constexpr double kTop = 34;
  constexpr int kTicks = 6;
  const std::vector<ForestRow> rows = ForestRows(report);
  Svg svg;
  svg.Text(kLeft, 12, "slower ◂ candidate ▸ faster; grey: the margin about zero", Svg::Anchor::kStart, 10);
  svg.Text(kLeft, 25, "■ primary ● guard ◇ control; an arrow goes on outside", Svg::Anchor::kStart, 10);
  if (rows.empty()) {
    svg.Text(kLeft, kTop + 12, "no series was measured");
    return svg.Finish("Gain by shape", "No series was measured.", kTop + 24);
  }
  const Scale scale = ForestScale(rows);
  const double bottom = kTop + kRow * static_cast<double>(rows.size());
  const Scale::Ticks ticks = scale.TicksFor(kTicks);
  DrawAxis(scale, ticks, bottom, &svg);
  std::string description;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ForestRow& row = rows[i];
    const double top = kTop + kRow * static_cast<double>(i);
    const double y = top + 37;
    const std::string name = PrintableText(TextOf(*row.series, "series"), 256);
    const std::string figures = ForestFigures(row);
    svg.Text(kLeft, top + 12, name);
    svg.Text(kLeft, top + 24, figures, Svg::Anchor::kStart, 10);
    absl::StrAppend(&description, name, ": ", figures, ". ");
    if (row.margin) {
      const double left = scale.At(-Percent(*row.margin));
      const double right = scale.At(Percent(*row.margin));
      svg.Band(left, y - 7, right - left, 14);
    }
    for (const double value : ticks.values) {
      const auto stroke = value == 0 ? Svg::Stroke::kSolid : Svg::Stroke::kFaint;
      svg.Line(scale.At(value), y - 9, scale.At(value), y + 9, stroke);
    }
    if (row.low && row.high) DrawInterval(row, scale, y, &svg);
    if (row.gain) {
      svg.Mark(MarkerOf(TextOf(*row.series, "role")), scale.At(*row.gain), y);
    } else {
      svg.Text(scale.At(0) + 6, y + 4, "no value", Svg::Anchor::kStart, 10);
    }
  }
  return svg.Finish("Gain by shape", description, bottom + 24);
}

std::string RoundsChart(const Json& report) {
  constexpr double kTop = 34;
  Svg svg;
  svg.Text(kLeft, 12, "● above zero ○ not; dashed: the mean", Svg::Anchor::kStart, 10);
  double top = kTop;
  for (const Json& series : ListOf(report, "series")) {
    svg.Text(kLeft, top, PrintableText(TextOf(series, "series"), 256));
    top += 10 + DrawRounds(series, top + 10, &svg) + 12;
  }
  if (top == kTop) {
    svg.Text(kLeft, top + 8, "no series was measured");
    top += 14;
  }
  return svg.Finish("Rounds in order", "The value of every round of every series, as listed in report.md under Rounds.",
                    top);
}

std::string ClocksChart(const Json& report) {
  constexpr double kPanel = 96;
  const Json& blocks = ListOf(report, "blocks");
  Svg svg;
  double top = 2;
  const struct {
    const char* key;
    const char* title;
    const char* unit;
  } kReadings[] = {{"sm_clock_mhz", "SM clock by block, in the order realised", "MHz"},
                   {"power_watts", "power", "W"},
                   {"temperature_celsius", "temperature", "°C"}};
  for (const auto& reading : kReadings) {
    if (DrawReading(blocks, reading.key, reading.title, reading.unit, top, &svg)) top += kPanel;
  }
  if (DrawForeignLoad(report, top, &svg)) top += kPanel;
  if (top == 2) {
    svg.Text(kLeft, 12, blocks.empty() ? "no block was measured" : "the device tells no clocks", Svg::Anchor::kStart,
             11);
    top += 18;
  }
  return svg.Finish("Clocks over time",
                    "What the device told at the edges of every block, block by block; a tick under a panel begins a "
                    "round. The range by arm is in report.md under Blocks.",
                    top);
}

std::vector<Picture> Pictures(const Json& report) {
  return {
      {"forest.svg", ForestChart(report)}, {"rounds.svg", RoundsChart(report)}, {"clocks.svg", ClocksChart(report)}};
}

}  // namespace keval::report
