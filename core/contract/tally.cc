#include "core/contract/tally.h"

#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace keval::contract {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

Tally::Tally(absl::string_view id, absl::string_view arm) {
  row_.id = std::string(id);
  row_.arm = std::string(arm);
}

void Tally::Measure(absl::string_view case_name, double measured, double limit, absl::string_view detail) {
  // An infinite limit would let everything through.
  Take(case_name, measured, limit, std::isfinite(limit) && measured <= limit, detail);
}

void Tally::Count(absl::string_view case_name, std::int64_t found, absl::string_view why) {
  Take(case_name, static_cast<double>(found), 0, found == 0, found == 0 ? "" : why);
}

void Tally::Expect(absl::string_view case_name, bool holds, absl::string_view why) {
  Take(case_name, kNan, kNan, holds, holds ? "" : why);
}

void Tally::Take(absl::string_view case_name, double measured, double limit, bool holds, absl::string_view detail) {
  double severity = 0;
  if (!holds) {
    severity = kInfinity;
  } else if (measured > 0) {
    severity = measured / limit;
  }
  // Of equals the first, but a figure before none: a row should say what it measured.
  const bool first_figure = std::isnan(row_.limit) && !std::isnan(limit);
  if (severity < severity_ || (severity == severity_ && !first_figure)) return;
  severity_ = severity;
  row_.case_name = std::string(case_name);
  row_.measured = measured;
  row_.limit = limit;
  row_.status = holds ? RowStatus::kPass : RowStatus::kFail;
  row_.why = PrintableText(detail, 1024);
}

void Tally::Note(absl::string_view text) {
  const std::string note = PrintableText(text, 256);
  if (absl::StrContains(notes_, note)) return;
  absl::StrAppend(&notes_, notes_.empty() ? "" : "; ", note);
}

Row Tally::ToRow() const {
  Row row = row_;
  if (row.status != RowStatus::kFail && !notes_.empty()) {
    absl::StrAppend(&row.why, row.why.empty() ? "" : "; ", notes_);
  }
  return row;
}

}  // namespace keval::contract
