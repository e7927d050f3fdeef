#include "server/grpc/status_conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "keval/v1/error.pb.h"
#include "keval/v1/status_details.pb.h"

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
  EXPECT_THAT(wire.status.error_details(), IsEmpty());
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

TEST(StatusConversionTest, GenericClientsReadFieldAndDelayAsGoogleRpcStatus) {
  const WireStatus wire = ToWire(WithRetryDelayMs(InvalidField("primaries[2].vocab_size", "0", "at least 1"), 1250));
  v1::StatusDetails details;
  ASSERT_TRUE(details.ParseFromString(wire.status.error_details()));
  EXPECT_EQ(details.code(), static_cast<int>(wire.status.error_code()));
  EXPECT_EQ(details.message(), wire.status.error_message());
  ASSERT_EQ(details.details_size(), 2);
  EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/google.rpc.BadRequest");
  v1::BadRequestDetail bad_request;
  ASSERT_TRUE(bad_request.ParseFromString(details.details(0).value()));
  ASSERT_EQ(bad_request.field_violations_size(), 1);
  EXPECT_EQ(bad_request.field_violations(0).field(), "primaries[2].vocab_size");
  EXPECT_EQ(bad_request.field_violations(0).description(), "must be at least 1");
  EXPECT_EQ(details.details(1).type_url(), "type.googleapis.com/google.rpc.RetryInfo");
  v1::RetryInfoDetail retry_info;
  ASSERT_TRUE(retry_info.ParseFromString(details.details(1).value()));
  EXPECT_EQ(retry_info.retry_delay().seconds(), 1);
  EXPECT_EQ(retry_info.retry_delay().nanos(), 250'000'000);
}

// The bytes that googleapis' own definitions give, written out by hand from the wire format: tag, length, value.
TEST(StatusConversionTest, TheWireFormatIsGoogleRpcs) {
  const WireStatus wire = ToWire(WithField(absl::NotFoundError("x"), {"f", "v", ""}));
  const std::string bad_request =
      "\x0a\x09\x0a\x01"
      "f\x12\x04is v";
  const std::string url = "type.googleapis.com/google.rpc.BadRequest";
  const auto length = [](const std::string& text) { return std::string(1, static_cast<char>(text.size())); };
  const std::string any = absl::StrCat("\x0a", length(url), url, "\x12", length(bad_request), bad_request);
  EXPECT_EQ(wire.status.error_details(), absl::StrCat("\x08\x05\x12\x01x\x1a", length(any), any));
}

TEST(StatusConversionTest, PlainErrorHasNoMetadata) {
  const WireStatus wire = ToWire(absl::NotFoundError("no such tensor"));
  EXPECT_THAT(wire.status.error_details(), IsEmpty());
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

TEST(StatusConversionTest, WhatNamesAFieldIsWrittenForTheCaller) {
  const WireStatus wire = ToWire(WithField(absl::AbortedError("part: another one failed"), {"part", "of it", ""}));
  EXPECT_EQ(wire.status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(wire.status.error_message(), "part: another one failed");
  EXPECT_EQ(DetailOf(wire).field(), "part");
}

TEST(StatusConversionTest, HostileTextIsCutAndPrintable) {
  const std::string hostile = "\x1b[31m" + std::string(100000, 'x');
  const WireStatus wire = ToWire(InvalidField(hostile, hostile, "short"));
  EXPECT_THAT(wire.status.error_message(), Not(HasSubstr("\x1b")));
  EXPECT_LT(wire.status.error_message().size(), 1100);
  EXPECT_LT(DetailOf(wire).ByteSizeLong(), 1000);
}

TEST(StatusConversionTest, TheLongestRefusalFitsIntoThe8KiBThatPeersAccept) {
  std::string umlauts;  // Each byte of the message becomes three in grpc-message.
  for (int i = 0; i < 5000; ++i) umlauts += "\xC3\xA4";
  const WireStatus wire = ToWire(WithRetryDelayMs(InvalidField(umlauts, umlauts, umlauts), 1000));
  std::size_t bytes = 3 * wire.status.error_message().size() + 4 * (wire.status.error_details().size() + 2) / 3;
  for (const auto& [key, value] : wire.trailing_metadata) {
    bytes += key.size() + 4 * (value.size() + 2) / 3 + 32;  // HTTP/2 counts 32 beside each.
  }
  EXPECT_LT(bytes, 7500);
}

}  // namespace
}  // namespace keval::server
