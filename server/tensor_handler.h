// TensorService without its transport.
#ifndef KEVAL_SERVER_TENSOR_HANDLER_H_
#define KEVAL_SERVER_TENSOR_HANDLER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "keval/v1/tensor.pb.h"
#include "server/call_context.h"
#include "server/tensor_frames.h"
#include "server/tensor_store.h"
#include "server/tensor_uploads.h"
#include "wire/frame.h"

namespace keval::server {

// One Put between its header and its end. Owner: one call. Dropping it gives the memory back.
class TensorUpload {
 public:
  // The next message, or what the first carries beside the header. INVALID_ARGUMENT: as tensor.proto says; ABORTED:
  // another part failed.
  absl::Status Take(const v1::PutRequest& message, const wire::FrameData& data);

 private:
  friend class TensorHandler;
  TensorUpload(TensorSpec spec, absl::Duration lease, v1::PayloadDigest digest, std::shared_ptr<HostBuffer> buffer);
  TensorUpload(TensorSpec spec, v1::PayloadDigest digest, std::int64_t bytes,
               std::unique_ptr<TensorUploads::Share> share);

  const TensorSpec spec_;
  const absl::Duration lease_;
  // Where the bytes go: a tensor of this stream's own, or a share in one.
  const std::shared_ptr<HostBuffer> buffer_;
  const std::unique_ptr<TensorUploads::Share> share_;
  PayloadReceiver receiver_;
};

// Error codes are those of tensor.proto. Thread-safe; does not own the store, which must outlive it.
class TensorHandler {
 public:
  explicit TensorHandler(TensorStore* store) : store_(store), uploads_(store) {}

  // `first` must hold the header; `data` is what came with it.
  absl::StatusOr<std::unique_ptr<TensorUpload>> StartPut(const CallContext& call, const v1::PutRequest& first,
                                                         const wire::FrameData& data);
  absl::StatusOr<v1::TensorInfo> FinishPut(const CallContext& call, TensorUpload* upload);

  absl::StatusOr<v1::TensorInfo> Reuse(const CallContext& call, const v1::ReuseTensorRequest& request);

  // `send` returns false when the stream has broken: CANCELLED. The payload is of the tensor's own memory.
  absl::Status Get(const CallContext& call, const v1::GetTensorRequest& request,
                   absl::FunctionRef<bool(const v1::GetTensorResponse& message, const wire::Payload& payload)> send);
  absl::StatusOr<v1::TensorInfo> Stat(const CallContext& call, const v1::StatTensorRequest& request);
  absl::StatusOr<v1::ListTensorsResponse> List(const CallContext& call, const v1::ListTensorsRequest& request);
  absl::StatusOr<v1::TensorInfo> Touch(const CallContext& call, const v1::TouchTensorRequest& request);
  absl::StatusOr<v1::DeleteTensorResponse> Delete(const CallContext& call, const v1::DeleteTensorRequest& request);

  // From time to time: uploads whose next part doesn't come.
  void DropIdleUploads() { uploads_.DropIdle(); }

 private:
  TensorStore* const store_;
  TensorUploads uploads_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_TENSOR_HANDLER_H_
