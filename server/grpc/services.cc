#include "server/grpc/services.h"

#include <memory>

namespace keval::server {
namespace {

// Reads until the peer's half-close. A refusal returns at once: whatever the peer still sends stays unread, so that no
// more than the flow-control window comes in. `message` holds the first one, already taken.
template <typename Stream, typename Message, typename Upload>
absl::Status TakeAll(const CallRunner& calls, const CallContext& call, grpc::ServerContext* context, Stream* stream,
                     Message* message, Upload* upload) {
  while (calls.Read(context, stream, message)) {
    if (absl::Status status = upload->Take(*message); !status.ok()) return status;
    if (absl::Status status = call.check(); !status.ok()) return status;
  }
  return call.check();  // A broken stream ends like a half-close.
}

}  // namespace

grpc::Status LinearLogpService::Plan(grpc::ServerContext* context, const v1::PlanRequest* request,
                                     v1::PlanResponse* response) {
  return calls_->Run(context, "Plan",
                     [&](const CallContext& call) { return Answer(handler_->Plan(call, *request), response); });
}

grpc::Status LinearLogpService::Forward(grpc::ServerContext* context, const v1::ForwardRequest* request,
                                        v1::ForwardResponse* response) {
  return calls_->Run(context, "Forward",
                     [&](const CallContext& call) { return Answer(handler_->Forward(call, *request), response); });
}

grpc::Status LinearLogpService::Gradient(grpc::ServerContext* context, const v1::GradientRequest* request,
                                         v1::GradientResponse* response) {
  return calls_->Run(context, "Gradient",
                     [&](const CallContext& call) { return Answer(handler_->Gradient(call, *request), response); });
}

grpc::Status LinearLogpService::StreamGradient(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::StreamGradientResponse, v1::StreamGradientRequest>* stream) {
  return calls_->Run(context, "StreamGradient", [&](const CallContext& call) -> absl::Status {
    v1::StreamGradientRequest message;
    calls_->Read(context, stream, &message);  // Without a first message: refused for want of a header.
    absl::StatusOr<std::unique_ptr<GradientStream>> upload = handler_->StartStream(call, message);
    if (!upload.ok()) return upload.status();
    absl::Status status = TakeAll(*calls_, call, context, stream, &message, upload->get());
    if (!status.ok()) return status;
    message.Clear();
    return handler_->FinishStream(call, upload->get(), [&](const v1::StreamGradientResponse& response) {
      return calls_->Write(context, stream, response);
    });
  });
}

grpc::Status LinearLogpService::CheckContract(grpc::ServerContext* context, const v1::CheckContractRequest* request,
                                              grpc::ServerWriter<v1::ContractRow>* writer) {
  return calls_->Run(context, "CheckContract", [&](const CallContext& call) {
    return contract_->Check(call, *request,
                            [&](const v1::ContractRow& row) { return calls_->Write(context, writer, row); });
  });
}

grpc::Status TensorService::Put(grpc::ServerContext* context, grpc::ServerReader<v1::PutRequest>* reader,
                                v1::TensorInfo* response) {
  return calls_->Run(context, "Put", [&](const CallContext& call) -> absl::Status {
    v1::PutRequest message;
    calls_->Read(context, reader, &message);
    absl::StatusOr<std::unique_ptr<TensorUpload>> upload = handler_->StartPut(call, message);
    if (!upload.ok()) return upload.status();
    absl::Status status = TakeAll(*calls_, call, context, reader, &message, upload->get());
    if (!status.ok()) return status;
    return Answer(handler_->FinishPut(call, upload->get()), response);
  });
}

grpc::Status TensorService::Get(grpc::ServerContext* context, const v1::GetTensorRequest* request,
                                grpc::ServerWriter<v1::GetTensorResponse>* writer) {
  return calls_->Run(context, "Get", [&](const CallContext& call) {
    return handler_->Get(call, *request, [&](const v1::GetTensorResponse& response) {
      return calls_->Write(context, writer, response);
    });
  });
}

grpc::Status TensorService::Stat(grpc::ServerContext* context, const v1::StatTensorRequest* request,
                                 v1::TensorInfo* response) {
  return calls_->Run(context, "Stat",
                     [&](const CallContext& call) { return Answer(handler_->Stat(call, *request), response); });
}

grpc::Status TensorService::List(grpc::ServerContext* context, const v1::ListTensorsRequest* request,
                                 v1::ListTensorsResponse* response) {
  return calls_->Run(context, "List",
                     [&](const CallContext& call) { return Answer(handler_->List(call, *request), response); });
}

grpc::Status TensorService::Touch(grpc::ServerContext* context, const v1::TouchTensorRequest* request,
                                  v1::TensorInfo* response) {
  return calls_->Run(context, "Touch",
                     [&](const CallContext& call) { return Answer(handler_->Touch(call, *request), response); });
}

grpc::Status TensorService::Delete(grpc::ServerContext* context, const v1::DeleteTensorRequest* request,
                                   v1::DeleteTensorResponse* response) {
  return calls_->Run(context, "Delete",
                     [&](const CallContext& call) { return Answer(handler_->Delete(call, *request), response); });
}

grpc::Status ServerInfoService::GetServerInfo(grpc::ServerContext* context, const v1::GetServerInfoRequest* /*request*/,
                                              v1::ServerInfo* response) {
  return calls_->Run(
      context, "GetServerInfo",
      [&](const CallContext& /*call*/) {
        *response = handler_->Get();
        return absl::OkStatus();
      },
      CallRunner::WhileDraining::kAnswer);
}

}  // namespace keval::server
