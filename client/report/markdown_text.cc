#include "client/report/markdown_text.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text.h"
#include "client/report/report_value.h"

namespace keval::report {
namespace {

std::size_t LongestRunOfBackticks(absl::string_view text) {
  std::size_t longest = 0;
  std::size_t run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return longest;
}

// A table's row is split at pipes before code spans are read, so a pipe needs its backslash even there. Behind another
// backslash that escape would be read as an escaped backslash and a pipe, so such a pipe is shown by its number.
std::string WithoutBarePipes(absl::string_view text) {
  std::string out;
  char before = '\0';
  for (const char c : text) {
    if (c == '|') out += before == '\\' ? "\\u007C" : "\\|";
    if (c != '|') out += c;
    before = c;
  }
  return out;
}

std::string Row(const std::vector<std::string>& cells) {
  return absl::StrCat("| ", absl::StrJoin(cells, " | "), " |\n");
}

}  // namespace

std::string CodeSpan(absl::string_view text) {
  const std::string printable = PrintableText(text);
  if (printable.find_first_not_of(' ') == std::string::npos) return std::string(kAbsent);
  const std::string fence(LongestRunOfBackticks(printable) + 1, '`');
  // One space at each end is taken off by the reader where both are there.
  const bool padded =
      printable.front() == '`' || printable.back() == '`' || (printable.front() == ' ' && printable.back() == ' ');
  const absl::string_view pad = padded ? " " : "";
  return absl::StrCat(fence, pad, WithoutBarePipes(printable), pad, fence);
}

std::string Table::Text() const {
  if (empty()) return "";
  const std::vector<std::string> rule(rows_[0].size(), "---");
  std::string out = Row(rows_[0]) + Row(rule);
  for (std::size_t i = 1; i < rows_.size(); ++i) out += Row(rows_[i]);
  return out + "\n";
}

std::string Folded(absl::string_view summary, absl::string_view body) {
  return absl::StrCat("<details><summary>", summary, "</summary>\n\n", body, "</details>\n\n");
}

}  // namespace keval::report
