#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/number.h"
#include "base/text.h"
#include "client/tensor_file/npy.h"

namespace keval::tensor_file {
namespace {

// Reads the part of Python's literal syntax that numpy writes. Each function skips blanks before what it reads.
class Scanner {
 public:
  explicit Scanner(absl::string_view text) : rest_(text) {}

  bool Take(char expected) {
    SkipBlanks();
    if (rest_.empty() || rest_.front() != expected) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool TakeWord(absl::string_view word) {
    SkipBlanks();
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  // 'text' or "text", without escapes.
  std::optional<std::string> Text() {
    SkipBlanks();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) return std::nullopt;
    const std::size_t end = rest_.find(rest_.front(), 1);
    if (end == absl::string_view::npos) return std::nullopt;
    const std::string text(rest_.substr(1, end - 1));
    if (text.find('\\') != std::string::npos) return std::nullopt;
    rest_.remove_prefix(end + 1);
    return text;
  }

  std::optional<std::int64_t> WholeNumber() {
    SkipBlanks();
    std::size_t digits = 0;
    while (digits < rest_.size() && absl::ascii_isdigit(static_cast<unsigned char>(rest_[digits]))) ++digits;
    const auto number = ParseInt64(rest_.substr(0, digits));
    if (number) rest_.remove_prefix(digits);
    return number;
  }

  // "(4, 8)", "(4,)" or "()".
  std::optional<std::vector<std::int64_t>> Tuple() {
    if (!Take('(')) return std::nullopt;
    std::vector<std::int64_t> numbers;
    bool comma = true;
    while (!Take(')')) {
      if (!comma) return std::nullopt;
      const auto number = WholeNumber();
      if (!number) return std::nullopt;
      numbers.push_back(*number);
      comma = Take(',');
      // (4) is a number to Python, not a tuple.
      if (!comma && numbers.size() == 1) return std::nullopt;
    }
    return numbers;
  }

  // What stands next, to be shown in an error: a tuple or list to its bracket, anything else to the next comma.
  absl::string_view Shown() {
    SkipBlanks();
    const char first = rest_.empty() ? '\0' : rest_.front();
    const bool bracketed = first == '(' || first == '[';
    const std::size_t end = bracketed ? rest_.find(first == '(' ? ')' : ']') : rest_.find_first_of(",}");
    if (end == absl::string_view::npos) return rest_;
    return absl::StripTrailingAsciiWhitespace(rest_.substr(0, bracketed ? end + 1 : end));
  }

  bool AtEnd() {
    SkipBlanks();
    return rest_.empty();
  }

 private:
  void SkipBlanks() { rest_ = absl::StripLeadingAsciiWhitespace(rest_); }

  absl::string_view rest_;
};

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view text, absl::string_view source) {
  constexpr std::size_t kMaxShown = 256;
  const auto refuse = [&](absl::string_view field, absl::string_view value, absl::string_view limit) {
    const std::string name = PrintableText(field, 64);
    const std::string shown = PrintableText(value, kMaxShown);
    return WithField(absl::InvalidArgumentError(
                         absl::StrCat(PrintableText(source), ": the header's ", name, " ", shown, " must be ", limit)),
                     {name, shown, std::string(limit)});
  };
  Scanner scanner(text);
  if (!scanner.Take('{')) return refuse("text", text, "a Python dict");
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::int64_t>> shape;
  bool comma = true;
  while (!scanner.Take('}')) {
    const auto key = comma ? scanner.Text() : std::nullopt;
    if (!key || !scanner.Take(':')) return refuse("text", text, "a Python dict");
    const absl::string_view shown = scanner.Shown();
    if (*key == "descr" && !descr) {
      descr = scanner.Text();
      if (!descr) return refuse("descr", shown, "a text such as '<f4' (structured types are not read)");
    } else if (*key == "fortran_order" && !fortran_order) {
      if (scanner.TakeWord("True")) {
        fortran_order = true;
      } else if (scanner.TakeWord("False")) {
        fortran_order = false;
      } else {
        return refuse("fortran_order", shown, "True or False");
      }
    } else if (*key == "shape" && !shape) {
      shape = scanner.Tuple();
      if (!shape) return refuse("shape", shown, "a tuple of whole numbers in [0, 2^63)");
    } else {
      return refuse("key", *key, "one of descr, fortran_order and shape, each given once");
    }
    comma = scanner.Take(',');
  }
  if (!descr) return refuse("descr", "left out", "given");
  if (!fortran_order) return refuse("fortran_order", "left out", "given");
  if (!shape) return refuse("shape", "left out", "given");
  if (!scanner.AtEnd()) return refuse("end", scanner.Shown(), "that of its dict: nothing but one Python dict is read");
  return NpyHeader{*std::move(descr), *fortran_order, *std::move(shape)};
}

}  // namespace keval::tensor_file
