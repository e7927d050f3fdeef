// Numbers to text and back, whatever locale the process or the C++ library was given. Nothing in keval formats or reads
// a number through iostreams, printf or strtod: those follow the locale ("0,01", "1.234").
#ifndef KEVAL_BASE_NUMBER_H_
#define KEVAL_BASE_NUMBER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace keval {

// The shortest text that reads back as exactly `value`; "nan", "inf", "-inf" for the others.
std::string DoubleText(double value);

// `value` with `digits` digits after the point, e.g. FixedText(1.5, 2) = "1.50".
std::string FixedText(double value, int digits);

// `value` with at most `digits` significant digits, e.g. SignificantText(0.00012345, 3) = "0.000123", "1.23e-07".
std::string SignificantText(double value, int digits);

// "+0.85 %", "-1.20 %", "+0.00 %".
std::string SignedPercentText(double percent);

// The whole of `text` as a decimal number: "0.01", "1e-2", "-3", "+2". Refuses hexadecimal, "inf", "nan", blanks,
// trailing characters, and values that overflow.
std::optional<double> ParseDouble(absl::string_view text);

// The whole of `text` as a decimal integer; leading zeros stay decimal ("0010" is 10).
std::optional<std::int64_t> ParseInt64(absl::string_view text);
std::optional<std::uint64_t> ParseUint64(absl::string_view text);

}  // namespace keval

#endif  // KEVAL_BASE_NUMBER_H_
