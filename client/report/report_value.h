// Reading values of a report.json that may lack any of them: what isn't there is shown as "–", never thrown about.
#ifndef KEVAL_CLIENT_REPORT_REPORT_VALUE_H_
#define KEVAL_CLIENT_REPORT_REPORT_VALUE_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace keval::report {

using Json = nlohmann::json;

inline constexpr absl::string_view kAbsent = "–";

// The member `key`, or null where `object` isn't an object or lacks it. The reference lives as long as `object`.
const Json& Member(const Json& object, absl::string_view key);

// As Member; an empty list where the member isn't one.
const Json& ListOf(const Json& object, absl::string_view key);

// A string as it is, a number or boolean in digits or words; "" for anything else.
std::string TextOf(const Json& value);
std::string TextOf(const Json& object, absl::string_view key);

// A number, or one of the strings "nan", "inf", "-inf" or of digits.
std::optional<double> NumberOf(const Json& value);
std::optional<double> NumberOf(const Json& object, absl::string_view key);

// True only for the boolean true.
bool IsTrue(const Json& object, absl::string_view key);

// The number with `digits` after the point; kAbsent where there is none.
std::string FixedOf(const Json& object, absl::string_view key, int digits);
// With at most four significant digits.
std::string ShortOf(const Json& object, absl::string_view key);
// "+1.93 %" of a number that is a percentage already.
std::string PercentOf(const Json& object, absl::string_view key);
// "+1.93 %" of a difference in ln units.
std::string GainOf(const Json& value);
std::string GainOf(const Json& object, absl::string_view key);
// "1.00 %" of a margin or spread of 0.01 in ln units: no gain, so without a sign, and 0.01 stays 1.00 %.
std::string SpreadOf(const Json& object, absl::string_view key);
// "123456 (0.1 MiB)".
std::string BytesOf(const Json& object, absl::string_view key);
// "2026-11-30T07:05:48Z"; kAbsent for 0 too.
std::string UtcOf(const Json& object, absl::string_view key);

}  // namespace keval::report

#endif  // KEVAL_CLIENT_REPORT_REPORT_VALUE_H_
