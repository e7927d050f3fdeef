// Text in Markdown (GitHub's dialect) that stays text, whatever it holds.
#ifndef KEVAL_CLIENT_REPORT_MARKDOWN_TEXT_H_
#define KEVAL_CLIENT_REPORT_MARKDOWN_TEXT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace keval::report {

// `text` from outside as an inline code span: nothing in it is markup, HTML, a link, a mention or an issue number
// there. Control characters are shown as in PrintableText, so that it stays on one line; a pipe is escaped, so that it
// may stand in a table. Empty text: kAbsent.
std::string CodeSpan(absl::string_view text);

// A table whose cells are Markdown already.
class Table {
 public:
  explicit Table(std::vector<std::string> headings) : rows_{std::move(headings)} {}
  // As many cells as headings.
  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.size() == 1; }
  // With an empty line behind it; "" without rows.
  std::string Text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// A section that is folded away until a reader asks for it; `summary` is our own text.
std::string Folded(absl::string_view summary, absl::string_view body);

}  // namespace keval::report

#endif  // KEVAL_CLIENT_REPORT_MARKDOWN_TEXT_H_
