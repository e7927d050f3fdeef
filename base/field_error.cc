#include "base/field_error.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace keval {
namespace {

constexpr absl::string_view kFieldUrl = "keval/field";
constexpr absl::string_view kValueUrl = "keval/value";
constexpr absl::string_view kLimitUrl = "keval/limit";
constexpr absl::string_view kRetryUrl = "keval/retry_delay_ms";
constexpr std::size_t kMaxValueBytes = 256;  // A hostile value must not swell an error message.

std::string PayloadText(const absl::Status& status, absl::string_view url) {
  const auto payload = status.GetPayload(url);
  return payload.has_value() ? std::string(*payload) : std::string();
}

}  // namespace

absl::Status InvalidField(absl::string_view field, absl::string_view value, absl::string_view limit) {
  const std::string shown = PrintableText(value, kMaxValueBytes);
  const std::string name = PrintableText(field, kMaxValueBytes);
  return WithField(absl::InvalidArgumentError(absl::StrCat(name, ": ", shown, " must be ", limit)),
                   {name, shown, std::string(limit)});
}

absl::Status WithField(absl::Status status, const FieldViolation& violation) {
  if (status.ok()) return status;
  status.SetPayload(kFieldUrl, absl::Cord(violation.field));
  if (!violation.value.empty()) status.SetPayload(kValueUrl, absl::Cord(violation.value));
  if (!violation.limit.empty()) status.SetPayload(kLimitUrl, absl::Cord(violation.limit));
  return status;
}

std::optional<FieldViolation> GetFieldViolation(const absl::Status& status) {
  if (!status.GetPayload(kFieldUrl).has_value()) return std::nullopt;
  return FieldViolation{PayloadText(status, kFieldUrl), PayloadText(status, kValueUrl), PayloadText(status, kLimitUrl)};
}

absl::Status WithRetryDelayMs(absl::Status status, std::int64_t delay_ms) {
  if (!status.ok()) status.SetPayload(kRetryUrl, absl::Cord(absl::StrCat(delay_ms)));
  return status;
}

std::optional<std::int64_t> GetRetryDelayMs(const absl::Status& status) {
  std::int64_t delay_ms = 0;
  if (!absl::SimpleAtoi(PayloadText(status, kRetryUrl), &delay_ms)) return std::nullopt;
  return delay_ms;
}

}  // namespace keval
