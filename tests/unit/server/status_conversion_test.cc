#include "server/grpc/status_conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "base/field_error.h"
#include "keval/v1/error.pb.h"

namespace keval::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

v1::ErrorDetail DetailOf(const WireStatus& wire) {
  v1::ErrorDetail detail;
  for (const auto& [key, value] : wire.trailing_metadata) {
    if (key != kErrorDetailKey) continue;
    EXPECT_TRUE(detail.ParseFromString(value));
  }
  return detail;
}

TEST(StatusConversionTest, OkCarriesNothing) {
  const WireStatus wire = ToWire(absl::OkStatus());
  EXPECT_TRUE(wire.status.ok());
  EXPECT_THAT(wire.trailing_metadata, IsEmpty());
}

TEST(StatusConversionTest, FieldValueAndLimitTravel) {
  const WireStatus wire = ToWire(InvalidField("targets", "-100 at index 0", "in [0, 17)"));
  EXPECT_EQ(wire.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(wire.status.error_message(), HasSubstr("targets"));
  const v1::ErrorDetail detail = DetailOf(wire);
  EXPECT_EQ(detail.field(), "targets");
  EXPECT_EQ(detail.value(), "-100 at index 0");
  EXPECT_EQ(detail.limit(), "in [0, 17)");
  EXPECT_EQ(detail.retry_delay_ms(), 0);
}

TEST(StatusConversionTest, RetryDelayTravelsTwice) {
  const WireStatus wire = ToWire(WithRetryDelayMs(absl::ResourceExhaustedError("queue is full"), 250));
  EXPECT_EQ(wire.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(DetailOf(wire).retry_delay_ms(), 250);
  EXPECT_THAT(wire.trailing_metadata, ::testing::Contains(Pair("keval-retry-delay-ms", "250")));
}

TEST(StatusConversionTest, PlainErrorHasNoMetadata) {
  const WireStatus wire = ToWire(absl::NotFoundError("no such tensor"));
  EXPECT_EQ(wire.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(wire.status.error_message(), "no such tensor");
  EXPECT_THAT(wire.trailing_metadata, IsEmpty());
}

TEST(StatusConversionTest, InternalsAreNotTold) {
  for (const auto code : {absl::StatusCode::kInternal, absl::StatusCode::kUnknown, absl::StatusCode::kAborted}) {
    const WireStatus wire = ToWire(absl::Status(code, "/home/op/keval/core/engine.cc:12 assert"));
    EXPECT_EQ(static_cast<int>(wire.status.error_code()), static_cast<int>(code));
    EXPECT_THAT(wire.status.error_message(), Not(HasSubstr("engine.cc")));
  }
}

TEST(StatusConversionTest, HostileTextIsCutAndPrintable) {
  const std::string hostile = "\x1b[31m" + std::string(100000, 'x');
  const WireStatus wire = ToWire(InvalidField(hostile, hostile, "short"));
  EXPECT_THAT(wire.status.error_message(), Not(HasSubstr("\x1b")));
  EXPECT_LT(wire.status.error_message().size(), 1100);
  EXPECT_LT(DetailOf(wire).ByteSizeLong(), 1000);
}

}  // namespace
}  // namespace keval::server
