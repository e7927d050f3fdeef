#include "base/number.h"

#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace keval {
namespace {

template <typename Number>
std::optional<Number> ParseWhole(absl::string_view text) {
  if (!text.empty() && text.front() == '+') {
    text.remove_prefix(1);
    if (text.empty() || text.front() == '-') return std::nullopt;
  }
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || text.empty()) return std::nullopt;
  return value;
}

std::optional<std::string> NonFiniteText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return std::nullopt;
}

}  // namespace

std::string DoubleText(double value) {
  if (auto text = NonFiniteText(value)) return *text;
  std::array<char, 32> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return std::string(buffer.data(), result.ptr);
}

std::string FixedText(double value, int digits) {
  if (auto text = NonFiniteText(value)) return *text;
  std::array<char, 384> buffer;  // The largest double has 309 digits before the point.
  const auto result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed, digits);
  return std::string(buffer.data(), result.ptr);
}

std::string SignificantText(double value, int digits) {
  if (auto text = NonFiniteText(value)) return *text;
  std::array<char, 384> buffer;
  const auto result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::general, digits);
  return std::string(buffer.data(), result.ptr);
}

std::string SignedPercentText(double percent) {
  return absl::StrCat(percent >= 0 ? "+" : "", FixedText(percent, 2), " %");
}

std::optional<double> ParseDouble(absl::string_view text) {
  const auto value = ParseWhole<double>(text);
  // from_chars also reads "inf" and "nan", which no file or flag of ours may hold as a number.
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return value;
}

std::optional<std::int64_t> ParseInt64(absl::string_view text) { return ParseWhole<std::int64_t>(text); }

std::optional<std::uint64_t> ParseUint64(absl::string_view text) { return ParseWhole<std::uint64_t>(text); }

}  // namespace keval
