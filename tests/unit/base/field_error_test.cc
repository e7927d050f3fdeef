#include "base/field_error.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"

namespace keval {
namespace {

TEST(FieldErrorTest, CarriesFieldValueAndLimit) {
  const absl::Status status = InvalidField("targets", "-100", "in [0, 17)");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "targets: -100 must be in [0, 17)");
  const auto violation = GetFieldViolation(status);
  ASSERT_TRUE(violation.has_value());
  EXPECT_EQ(violation->field, "targets");
  EXPECT_EQ(violation->value, "-100");
  EXPECT_EQ(violation->limit, "in [0, 17)");
}

TEST(FieldErrorTest, AHostileValueNeitherSwellsNorEscapes) {
  const absl::Status status = InvalidField("variant", std::string(10000, 'x') + "\x1b", "a known variant");
  EXPECT_LT(status.message().size(), 400U);
  EXPECT_FALSE(absl::StrContains(InvalidField("variant", "\x1b[2J", "plain").message(), "\x1b"));
}

TEST(FieldErrorTest, RetryDelay) {
  EXPECT_EQ(GetRetryDelayMs(WithRetryDelayMs(absl::ResourceExhaustedError("queue"), 250)), 250);
  EXPECT_EQ(GetRetryDelayMs(absl::ResourceExhaustedError("queue")), std::nullopt);
  EXPECT_TRUE(WithRetryDelayMs(absl::OkStatus(), 1).ok());
}

}  // namespace
}  // namespace keval
