#include "server/tensor_handler.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "server/proto_convert.h"
#include "server/request_fields.h"
#include "wire/payload_digest.h"

namespace keval::server {
namespace {

absl::Status Broken() { return absl::CancelledError("the caller has gone"); }

}  // namespace

TensorUpload::TensorUpload(TensorSpec spec, absl::Duration lease, v1::PayloadDigest digest,
                           std::shared_ptr<HostBuffer> buffer)
    : spec_(std::move(spec)),
      lease_(lease),
      buffer_(std::move(buffer)),
      receiver_({PayloadSegment{"data", buffer_->data(), buffer_->size()}}, digest) {}

TensorUpload::TensorUpload(TensorSpec spec, v1::PayloadDigest digest, std::int64_t bytes,
                           std::unique_ptr<TensorUploads::Share> share)
    : spec_(std::move(spec)),
      share_(std::move(share)),
      receiver_({PayloadSegment{"data", share_->data(), bytes}}, digest) {}

absl::Status TensorUpload::Take(const v1::PutRequest& message, const wire::FrameData& data) {
  absl::Status status = receiver_.Take(message, data);
  if (share_ != nullptr) status.Update(share_->Check());
  return status;
}

absl::StatusOr<std::unique_ptr<TensorUpload>> TensorHandler::StartPut(const CallContext& call,
                                                                      const v1::PutRequest& first,
                                                                      const wire::FrameData& data) {
  if (!first.has_header()) return InvalidField("header", "absent", "in the first message");
  const v1::PutHeader& header = first.header();
  absl::StatusOr<TensorSpec> spec = FromProto("spec", header.spec());
  if (!spec.ok()) return spec.status();
  absl::StatusOr<std::int64_t> bytes = NumBytes("spec", *spec);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<absl::Duration> lease = ParseLease(header.lease_ms());
  if (!lease.ok()) return lease.status();
  std::unique_ptr<TensorUpload> upload;
  if (header.has_part()) {
    const v1::UploadPart& part = header.part();
    absl::StatusOr<std::unique_ptr<TensorUploads::Share>> share =
        uploads_.Join(call.principal, {part.upload_id(), *spec, *bytes, *lease, part.begin(), part.size()});
    if (!share.ok()) return share.status();
    upload = absl::WrapUnique(new TensorUpload(*std::move(spec), header.digest(), part.size(), *std::move(share)));
  } else {
    absl::StatusOr<std::shared_ptr<HostBuffer>> buffer = store_->Allocate(call.principal, *bytes);
    if (!buffer.ok()) return buffer.status();
    upload = absl::WrapUnique(new TensorUpload(*std::move(spec), *lease, header.digest(), *std::move(buffer)));
  }
  if (absl::Status status = upload->Take(first, data); !status.ok()) return status;
  return upload;
}

absl::StatusOr<v1::TensorInfo> TensorHandler::FinishPut(const CallContext& call, TensorUpload* upload) {
  if (absl::Status status = upload->receiver_.Finish(); !status.ok()) return status;
  if (upload->share_ != nullptr) {
    if (absl::Status status = call.check(); !status.ok()) return status;
    absl::StatusOr<std::optional<StoredTensor>> whole = upload->share_->Complete();
    if (!whole.ok()) return whole.status();
    if (whole->has_value()) return ToProto(**whole);
    v1::TensorInfo unfinished;
    *unfinished.mutable_spec() = ToProto(upload->spec_);
    return unfinished;
  }
  const v1::PayloadTrailer& digest = upload->receiver_.Digest();
  // Nobody would learn the handle, and the tensor would stay until its lease ends.
  if (absl::Status status = call.check(); !status.ok()) return status;
  absl::StatusOr<StoredTensor> tensor =
      store_->Insert(call.principal, upload->spec_, upload->buffer_, {digest.sha256(), digest.xxh3()}, upload->lease_);
  if (!tensor.ok()) return tensor.status();
  return ToProto(*tensor);
}

absl::StatusOr<v1::TensorInfo> TensorHandler::Reuse(const CallContext& call, const v1::ReuseTensorRequest& request) {
  absl::StatusOr<TensorSpec> spec = FromProto("spec", request.spec());
  if (!spec.ok()) return spec.status();
  if (request.sha256().size() != 32) {
    return InvalidField("sha256", absl::StrCat(request.sha256().size(), " bytes"), "32 bytes");
  }
  absl::StatusOr<absl::Duration> lease = ParseLease(request.lease_ms());
  if (!lease.ok()) return lease.status();
  absl::StatusOr<StoredTensor> tensor = store_->Reuse(call.principal, *spec, request.sha256(), *lease);
  if (!tensor.ok()) return tensor.status();
  return ToProto(*tensor);
}

absl::Status TensorHandler::Get(
    const CallContext& call, const v1::GetTensorRequest& request,
    absl::FunctionRef<bool(const v1::GetTensorResponse& message, const wire::Payload& payload)> send) {
  absl::StatusOr<StoredTensor> tensor = store_->Find(call.principal, request.handle());
  if (!tensor.ok()) return tensor.status();
  v1::GetTensorResponse message;
  *message.mutable_header() = ToProto(*tensor);
  if (!send(message, {})) return Broken();
  message.Clear();
  const bool known =
      request.digest() == v1::PAYLOAD_DIGEST_XXH3 ? !tensor->digests.xxh3.empty() : !tensor->digests.sha256.empty();
  wire::PayloadDigest digest(known ? v1::PAYLOAD_DIGEST_NONE : request.digest());
  const absl::Span<const std::byte> bytes(tensor->buffer->data(), static_cast<std::size_t>(tensor->buffer->size()));
  for (std::size_t offset = 0; offset < bytes.size(); offset += wire::kSentFrameBytes) {
    if (absl::Status status = call.check(); !status.ok()) return status;
    const absl::Span<const std::byte> frame = bytes.subspan(offset, wire::kSentFrameBytes);
    digest.Update(frame.data(), frame.size());
    if (!send(message, {offset, frame, tensor->buffer})) return Broken();
  }
  *message.mutable_trailer() = digest.Finish();
  if (message.trailer().ByteSizeLong() == 0) return absl::OkStatus();
  return send(message, {}) ? absl::OkStatus() : Broken();
}

absl::StatusOr<v1::TensorInfo> TensorHandler::Stat(const CallContext& call, const v1::StatTensorRequest& request) {
  absl::StatusOr<StoredTensor> tensor = store_->Find(call.principal, request.handle());
  if (!tensor.ok()) return tensor.status();
  return ToProto(*tensor);
}

absl::StatusOr<v1::ListTensorsResponse> TensorHandler::List(const CallContext& call,
                                                            const v1::ListTensorsRequest& request) {
  const absl::StatusOr<int> page_size = ParsePageSize(request.page_size());
  if (!page_size.ok()) return page_size.status();
  if (!request.page_token().empty() && !IsHexName(request.page_token(), "tensors/", 32)) {
    return BadPageToken(request.page_token());
  }
  std::vector<StoredTensor> tensors = store_->List(call.principal, request.page_token(), *page_size + 1);
  v1::ListTensorsResponse response;
  if (tensors.size() > static_cast<std::size_t>(*page_size)) {
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
