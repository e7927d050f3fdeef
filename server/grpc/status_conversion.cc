#include "server/grpc/status_conversion.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/text.h"
#include "keval/v1/error.pb.h"
#include "keval/v1/status_details.pb.h"

namespace keval::server {
namespace {

constexpr std::size_t kMaxMessageBytes = 1024;
constexpr std::size_t kMaxTextBytes = 256;

// Whether messages of this code are written for the caller even where they name no field.
bool IsForCaller(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kAborted:
      return false;
    default:
      return true;
  }
}

// A detail in google.rpc's name, which a generic client knows it by.
void AddDetail(const char* name, const google::protobuf::MessageLite& detail, v1::StatusDetails* details) {
  google::protobuf::Any* const any = details->add_details();
  any->set_type_url(absl::StrCat("type.googleapis.com/google.rpc.", name));
  any->set_value(detail.SerializeAsString());
}

// google.rpc.Status of what `detail` says, as the value of grpc-status-details-bin.
std::string StatusDetailsText(const grpc::Status& status, const v1::ErrorDetail& detail) {
  v1::StatusDetails details;
  details.set_code(status.error_code());
  details.set_message(status.error_message());
  if (!detail.field().empty()) {
    v1::BadRequestDetail bad_request;
    auto* const violation = bad_request.add_field_violations();
    violation->set_field(detail.field());
    violation->set_description(detail.limit().empty() ? absl::StrCat("is ", detail.value())
                                                      : absl::StrCat("must be ", detail.limit()));
    AddDetail("BadRequest", bad_request, &details);
  }
  if (detail.retry_delay_ms() > 0) {
    v1::RetryInfoDetail retry_info;
    retry_info.mutable_retry_delay()->set_seconds(detail.retry_delay_ms() / 1000);
    retry_info.mutable_retry_delay()->set_nanos(static_cast<std::int32_t>(detail.retry_delay_ms() % 1000) * 1'000'000);
    AddDetail("RetryInfo", retry_info, &details);
  }
  return details.SerializeAsString();
}

}  // namespace

WireStatus ToWire(const absl::Status& status) {
  WireStatus wire;
  if (status.ok()) return wire;
  // absl's and gRPC's codes are the same numbers; both come from google.rpc.Code.
  const auto code = static_cast<grpc::StatusCode>(status.raw_code());
  const std::optional<FieldViolation> violation = GetFieldViolation(status);
  wire.status = grpc::Status(code, violation.has_value() || IsForCaller(status.code())
                                       ? PrintableText(status.message(), kMaxMessageBytes)
                                       : std::string("the server failed; its log says more"));

  const std::optional<std::int64_t> retry_delay_ms = GetRetryDelayMs(status);
  if (violation.has_value() || retry_delay_ms.has_value()) {
    v1::ErrorDetail detail;
    if (violation.has_value()) {
      detail.set_field(PrintableText(violation->field, kMaxTextBytes));
      detail.set_value(PrintableText(violation->value, kMaxTextBytes));
      detail.set_limit(PrintableText(violation->limit, kMaxTextBytes));
    }
    detail.set_retry_delay_ms(retry_delay_ms.value_or(0));
    wire.trailing_metadata.emplace_back(kErrorDetailKey, detail.SerializeAsString());
    // gRPC sends it as grpc-status-details-bin.
    wire.status = grpc::Status(code, wire.status.error_message(), StatusDetailsText(wire.status, detail));
  }
  if (retry_delay_ms.has_value()) wire.trailing_metadata.emplace_back(kRetryDelayKey, absl::StrCat(*retry_delay_ms));
  return wire;
}

grpc::Status ToGrpc(const absl::Status& status, grpc::ServerContextBase* context) {
  WireStatus wire = ToWire(status);
  for (const auto& [key, value] : wire.trailing_metadata) context->AddTrailingMetadata(key, value);
  return std::move(wire.status);
}

}  // namespace keval::server
