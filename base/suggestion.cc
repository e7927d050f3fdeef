#include "base/suggestion.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace keval {
namespace {

// Edits (insert, remove, replace) from one word to the other.
std::size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string Suggestion(absl::string_view given, const std::vector<std::string>& known) {
  constexpr std::size_t kMaxWord = 64;
  if (given.size() > kMaxWord) return "";
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, given.size() / 3) + 1;
  for (const std::string& word : known) {
    const std::size_t distance = EditDistance(given, word);
    if (distance < best_distance) {
      best = word;
      best_distance = distance;
    }
  }
  return best.empty() ? "" : absl::StrCat("; did you mean ", best, "?");
}

}  // namespace keval
