#include "client/report/report_value.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/number.h"

namespace keval::report {

const Json& Member(const Json& object, absl::string_view key) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto found = object.find(std::string(key));
  return found == object.end() ? null : *found;
}

const Json& ListOf(const Json& object, absl::string_view key) {
  static const Json empty = Json::array();
  const Json& list = Member(object, key);
  return list.is_array() ? list : empty;
}

std::string TextOf(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number_unsigned()) return absl::StrCat(value.get<std::uint64_t>());
  if (value.is_number_integer()) return absl::StrCat(value.get<std::int64_t>());
  if (value.is_number()) return DoubleText(value.get<double>());
  return "";
}

std::string TextOf(const Json& object, absl::string_view key) { return TextOf(Member(object, key)); }

std::optional<double> NumberOf(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const std::string text = value.get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  return ParseDouble(text);
}

std::optional<double> NumberOf(const Json& object, absl::string_view key) { return NumberOf(Member(object, key)); }

bool IsTrue(const Json& object, absl::string_view key) {
  const Json& value = Member(object, key);
  return value.is_boolean() && value.get<bool>();
}

std::string FixedOf(const Json& object, absl::string_view key, int digits) {
  const auto number = NumberOf(object, key);
  return number ? FixedText(*number, digits) : std::string(kAbsent);
}

std::string ShortOf(const Json& object, absl::string_view key) {
  constexpr int kDigits = 4;
  const auto number = NumberOf(object, key);
  return number ? SignificantText(*number, kDigits) : std::string(kAbsent);
}

std::string PercentOf(const Json& object, absl::string_view key) {
  const auto number = NumberOf(object, key);
  return number ? SignedPercentText(*number) : std::string(kAbsent);
}

std::string GainOf(const Json& value) {
  const auto number = NumberOf(value);
  return number ? SignedPercentText(100 * std::expm1(*number)) : std::string(kAbsent);
}

std::string GainOf(const Json& object, absl::string_view key) { return GainOf(Member(object, key)); }

std::string SpreadOf(const Json& object, absl::string_view key) {
  const auto number = NumberOf(object, key);
  return number ? absl::StrCat(FixedText(100 * *number, 2), " %") : std::string(kAbsent);
}

std::string BytesOf(const Json& object, absl::string_view key) {
  constexpr double kMebibyte = 1048576;
  const auto number = NumberOf(object, key);
  if (!number) return std::string(kAbsent);
  return absl::StrCat(TextOf(object, key), " (", FixedText(*number / kMebibyte, 1), " MiB)");
}

std::string UtcOf(const Json& object, absl::string_view key) {
  const auto number = NumberOf(object, key);
  if (!number || !(*number > 0) || *number > 1e15) return std::string(kAbsent);
  const absl::Time time = absl::FromUnixMillis(static_cast<std::int64_t>(*number));
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

}  // namespace keval::report
