// TensorService without its transport.
#ifndef KEVAL_SERVER_TENSOR_HANDLER_H_
#define KEVAL_SERVER_TENSOR_HANDLER_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "keval/v1/tensor.pb.h"
#include "server/call_context.h"
#include "server/tensor_frames.h"
#include "server/tensor_store.h"

namespace keval::server {

// One Put between its header and its end. Owner: one call. Dropping it gives the memory back.
class TensorUpload {
 public:
  // The next message, or what the first carries beside the header. INVALID_ARGUMENT: as tensor.proto says.
  absl::Status Take(const v1::PutRequest& message);

 private:
  friend class TensorHandler;
  TensorUpload(TensorSpec spec, absl::Duration lease, std::shared_ptr<HostBuffer> buffer);

  const TensorSpec spec_;
  const absl::Duration lease_;
  const std::shared_ptr<HostBuffer> buffer_;
  FrameAssembler assembler_;
  bool started_ = false;
  bool has_trailer_ = false;
  std::string sha256_;
};

// Error codes are those of tensor.proto. Thread-safe; does not own the store, which must outlive it.
class TensorHandler {
 public:
  explicit TensorHandler(TensorStore* store) : store_(store) {}

  absl::StatusOr<std::unique_ptr<TensorUpload>> StartPut(const CallContext& call, const v1::PutRequest& first);
  absl::StatusOr<v1::TensorInfo> FinishPut(const CallContext& call, TensorUpload* upload);

  // `send` returns false when the stream has broken: CANCELLED.
  absl::Status Get(const CallContext& call, const v1::GetTensorRequest& request,
                   absl::FunctionRef<bool(const v1::GetTensorResponse&)> send);
  absl::StatusOr<v1::TensorInfo> Stat(const CallContext& call, const v1::StatTensorRequest& request);
  absl::StatusOr<v1::ListTensorsResponse> List(const CallContext& call, const v1::ListTensorsRequest& request);
  absl::StatusOr<v1::TensorInfo> Touch(const CallContext& call, const v1::TouchTensorRequest& request);
  absl::StatusOr<v1::DeleteTensorResponse> Delete(const CallContext& call, const v1::DeleteTensorRequest& request);

 private:
  TensorStore* const store_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_TENSOR_HANDLER_H_
