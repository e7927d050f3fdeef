#include "server/tensor_handler.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/field_error.h"
#include "server/proto_convert.h"

namespace keval::server {
namespace {

constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;

absl::StatusOr<absl::Duration> ParseLease(std::int64_t lease_ms) {
  if (lease_ms < 0) return InvalidField("lease_ms", absl::StrCat(lease_ms), "at least 0");
  return absl::Milliseconds(lease_ms);
}

absl::Status Broken() { return absl::CancelledError("the caller has gone"); }

bool IsHandle(absl::string_view text) {
  return absl::ConsumePrefix(&text, "tensors/") && text.size() == 32 &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); });
}

}  // namespace

TensorUpload::TensorUpload(TensorSpec spec, absl::Duration lease, std::shared_ptr<HostBuffer> buffer)
    : spec_(std::move(spec)),
      lease_(lease),
      buffer_(std::move(buffer)),
      assembler_({PayloadSegment{"data", buffer_->data(), buffer_->size()}}) {}

absl::Status TensorUpload::Take(const v1::PutRequest& message) {
  if (message.has_header() && std::exchange(started_, true)) {
    return InvalidField("header", "repeated", "in the first message and only there");
  }
  started_ = true;
  if (has_trailer_) return InvalidField("trailer", "followed by another message", "in the last message");
  if (message.offset() != 0 || !message.data().empty()) {
    if (absl::Status status = assembler_.Add(message.offset(), message.data()); !status.ok()) return status;
  }
  if (message.has_trailer()) {
    has_trailer_ = true;
    sha256_ = message.trailer().sha256();
    if (sha256_.size() != 32) return InvalidField("sha256", absl::StrCat(sha256_.size(), " bytes"), "32 bytes");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TensorUpload>> TensorHandler::StartPut(const CallContext& /*call*/,
                                                                      const v1::PutRequest& first) {
  if (!first.has_header()) return InvalidField("header", "absent", "in the first message");
  absl::StatusOr<TensorSpec> spec = FromProto("spec", first.header().spec());
  if (!spec.ok()) return spec.status();
  absl::StatusOr<std::int64_t> bytes = NumBytes("spec", *spec);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<absl::Duration> lease = ParseLease(first.header().lease_ms());
  if (!lease.ok()) return lease.status();
  absl::StatusOr<std::shared_ptr<HostBuffer>> buffer = store_->Allocate(*bytes);
  if (!buffer.ok()) return buffer.status();
  auto upload = absl::WrapUnique(new TensorUpload(*std::move(spec), *lease, *std::move(buffer)));
  if (absl::Status status = upload->Take(first); !status.ok()) return status;
  return upload;
}

absl::StatusOr<v1::TensorInfo> TensorHandler::FinishPut(const CallContext& call, TensorUpload* upload) {
  if (absl::Status status = upload->assembler_.Finish(upload->sha256_); !status.ok()) return status;
  std::string sha256 = upload->has_trailer_ ? upload->sha256_ : upload->assembler_.Sha256();
  // Nobody would learn the handle, and the tensor would stay until its lease ends.
  if (absl::Status status = call.check(); !status.ok()) return status;
  return ToProto(store_->Insert(call.principal, upload->spec_, upload->buffer_, std::move(sha256), upload->lease_));
}

absl::Status TensorHandler::Get(const CallContext& call, const v1::GetTensorRequest& request,
                                absl::FunctionRef<bool(const v1::GetTensorResponse&)> send) {
  absl::StatusOr<StoredTensor> tensor = store_->Find(call.principal, request.handle());
  if (!tensor.ok()) return tensor.status();
  v1::GetTensorResponse message;
  *message.mutable_header() = ToProto(*tensor);
  if (!send(message)) return Broken();
  message.Clear();
  const HostBuffer& buffer = *tensor->buffer;
  for (std::int64_t offset = 0; offset < buffer.size(); offset += kSentFrameBytes) {
    if (absl::Status status = call.check(); !status.ok()) return status;
    message.set_offset(static_cast<std::uint64_t>(offset));
    message.set_data(buffer.data() + offset,
                     static_cast<std::size_t>(std::min(kSentFrameBytes, buffer.size() - offset)));
    if (!send(message)) return Broken();
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::TensorInfo> TensorHandler::Stat(const CallContext& call, const v1::StatTensorRequest& request) {
  absl::StatusOr<StoredTensor> tensor = store_->Find(call.principal, request.handle());
  if (!tensor.ok()) return tensor.status();
  return ToProto(*tensor);
}

absl::StatusOr<v1::ListTensorsResponse> TensorHandler::List(const CallContext& call,
                                                            const v1::ListTensorsRequest& request) {
  const int page_size = request.page_size() == 0 ? kDefaultPageSize : request.page_size();
  if (page_size < 1 || page_size > kMaxPageSize) {
    return InvalidField("page_size", absl::StrCat(request.page_size()), absl::StrCat("in [0, ", kMaxPageSize, "]"));
  }
  if (!request.page_token().empty() && !IsHandle(request.page_token())) {
    return InvalidField("page_token", request.page_token(), "empty or a next_page_token of an earlier answer");
  }
  std::vector<StoredTensor> tensors = store_->List(call.principal, request.page_token(), page_size + 1);
  v1::ListTensorsResponse response;
  if (tensors.size() > static_cast<std::size_t>(page_size)) {
    tensors.pop_back();
    response.set_next_page_token(tensors.back().handle);
  }
  for (const StoredTensor& tensor : tensors) *response.add_tensors() = ToProto(tensor);
  return response;
}

absl::StatusOr<v1::TensorInfo> TensorHandler::Touch(const CallContext& call, const v1::TouchTensorRequest& request) {
  absl::StatusOr<absl::Duration> lease = ParseLease(request.lease_ms());
  if (!lease.ok()) return lease.status();
  absl::StatusOr<StoredTensor> tensor = store_->Touch(call.principal, request.handle(), *lease);
  if (!tensor.ok()) return tensor.status();
  return ToProto(*tensor);
}

absl::StatusOr<v1::DeleteTensorResponse> TensorHandler::Delete(const CallContext& call,
                                                               const v1::DeleteTensorRequest& request) {
  if (absl::Status status = store_->Delete(call.principal, request.handle()); !status.ok()) return status;
  return v1::DeleteTensorResponse();
}

}  // namespace keval::server
