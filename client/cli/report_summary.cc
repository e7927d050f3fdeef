#include "client/cli/report_summary.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/number.h"
#include "base/text.h"

namespace keval::cli {
namespace {

using Row = std::array<std::string, 7>;

std::string Figure(const nlohmann::json& series, const char* key, int digits) {
  const auto found = series.find(key);
  return found != series.end() && found->is_number() ? FixedText(found->get<double>(), digits) : "-";
}

std::string Text(const nlohmann::json& series, const char* key) {
  const auto found = series.find(key);
  return found != series.end() && found->is_string() ? PrintableText(found->get<std::string>(), 80) : "-";
}

Row MakeRow(const nlohmann::json& series) {
  return {Text(series, "series"),
          Text(series, "role"),
          absl::StrCat(Figure(series, "base_ms", 3), " ms"),
          absl::StrCat(Figure(series, "candidate_ms", 3), " ms"),
          absl::StrCat(Figure(series, "gain_pct", 2), " % [", Figure(series, "gain_lo_pct", 2), ", ",
                       Figure(series, "gain_hi_pct", 2), "]"),
          absl::StrCat(Figure(series, "positive", 0), "/", Figure(series, "n", 0)),
          Text(series, "status")};
}

}  // namespace

std::string ReportSummary(const nlohmann::json& report) {
  std::vector<Row> rows = {{"series", "role", "base", "candidate", "gain", "rounds +", "status"}};
  const auto found = report.find("series");
  if (found == report.end() || !found->is_array() || found->empty()) return "";
  for (const auto& series : *found) {
    if (series.is_object()) rows.push_back(MakeRow(series));
  }
  std::array<std::size_t, std::tuple_size_v<Row>> widths = {};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + 2, ' ');
    }
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace keval::cli
