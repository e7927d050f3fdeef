#include "server/grpc/services.h"

#include <grpcpp/support/method_handler.h>

#include <memory>
#include <utility>

namespace keval::server {
namespace {

// Reads until the peer's half-close. A refusal returns at once: whatever the peer still sends stays unread, so that no
// more than the flow-control window comes in. `message` holds the first one, already taken.
template <typename Stream, typename Message, typename Upload>
absl::Status TakeAll(const CallRunner& calls, const CallContext& call, grpc::ServerContext* context, Stream* stream,
                     Message* message, Upload* upload) {
  StallWatch::Patience patience;
  while (calls.Read(context, stream, message, &patience)) {
    if (!message->status.ok()) return message->status;
    if (message->data.size > 0) patience.Renew();
    if (absl::Status status = upload->Take(message->fields, message->data); !status.ok()) return status;
    if (absl::Status status = call.check(); !status.ok()) return status;
  }
  return call.check();  // A broken stream ends like a half-close.
}

// The place of a method among its service's, as generated code numbers them.
int MethodIndex(const google::protobuf::FileDescriptor* file, const char* service, const char* method) {
  return file->FindServiceByName(service)->FindMethodByName(method)->index();
}

// What grpc::Service::MarkMethodStreamed takes, and then owns.
template <typename Stream, typename Function>
grpc::internal::MethodHandler* StreamHandler(Function function) {
  using Handler = grpc::internal::TemplatedBidiStreamingHandler<Stream, /*WriteNeeded=*/false>;
  return std::make_unique<Handler>(std::move(function)).release();
}

}  // namespace

LinearLogpService::LinearLogpService(const CallRunner* calls, LinearLogpHandler* handler, SessionHandler* sessions,
                                     ContractHandler* contract)
    : calls_(calls), handler_(handler), sessions_(sessions), contract_(contract) {
  const google::protobuf::FileDescriptor* const file = v1::StreamGradientRequest::descriptor()->file();
  MarkMethodStreamed(MethodIndex(file, "LinearLogpService", "StreamGradient"),
                     StreamHandler<GradientMessages>([this](grpc::ServerContext* context, GradientMessages* stream) {
                       return RunStreamGradient(context, stream);
                     }));
}

TensorService::TensorService(const CallRunner* calls, TensorHandler* handler) : calls_(calls), handler_(handler) {
  const google::protobuf::FileDescriptor* const file = v1::PutRequest::descriptor()->file();
  // To a server every stream is one in both directions; what the peer may send is checked below.
  MarkMethodStreamed(MethodIndex(file, "TensorService", "Put"),
                     StreamHandler<PutMessages>([this](grpc::ServerContext* context, PutMessages* stream) {
                       return RunPut(context, stream);
                     }));
  MarkMethodStreamed(MethodIndex(file, "TensorService", "Get"),
                     StreamHandler<GetMessages>([this](grpc::ServerContext* context, GetMessages* stream) {
                       return RunGet(context, stream);
                     }));
}

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

grpc::Status LinearLogpService::RunStreamGradient(grpc::ServerContext* context, GradientMessages* stream) {
  return calls_->RunStream(context, "StreamGradient", [&](const CallContext& call) -> absl::Status {
    wire::ReceivedMessage<v1::StreamGradientRequest> message;
    calls_->Read(context, stream, &message);  // Without a first message: refused for want of a header.
    if (!message.status.ok()) return message.status;
    // Called from the thread that sends while this one reads.
    const auto send = [&](const v1::StreamGradientResponse& fields, const wire::Payload& payload) {
      return calls_->Write(context, stream, wire::SentMessage<v1::StreamGradientResponse>{&fields, payload});
    };
    absl::StatusOr<std::unique_ptr<GradientStream>> upload =
        handler_->StartStream(call, message.fields, message.data, send);
    if (!upload.ok()) return upload.status();
    absl::Status status = TakeAll(*calls_, call, context, stream, &message, upload->get());
    if (!status.ok()) return status;
    return handler_->FinishStream(call, upload->get());
  });
}

grpc::Status LinearLogpService::CheckContract(grpc::ServerContext* context, const v1::CheckContractRequest* request,
                                              grpc::ServerWriter<v1::ContractRow>* writer) {
  return calls_->RunStream(context, "CheckContract", [&](const CallContext& call) {
    return contract_->Check(call, *request,
                            [&](const v1::ContractRow& row) { return calls_->Write(context, writer, row); });
  });
}

grpc::Status LinearLogpService::CreateSession(grpc::ServerContext* context, const v1::CreateSessionRequest* request,
                                              v1::GradientSession* response) {
  return calls_->Run(context, "CreateSession",
                     [&](const CallContext& call) { return Answer(sessions_->Create(call, *request), response); });
}

grpc::Status LinearLogpService::GetSession(grpc::ServerContext* context, const v1::GetSessionRequest* request,
                                           v1::GradientSession* response) {
  return calls_->Run(context, "GetSession",
                     [&](const CallContext& call) { return Answer(sessions_->Get(call, *request), response); });
}

grpc::Status LinearLogpService::ListSessions(grpc::ServerContext* context, const v1::ListSessionsRequest* request,
                                             v1::ListSessionsResponse* response) {
  return calls_->Run(context, "ListSessions",
                     [&](const CallContext& call) { return Answer(sessions_->List(call, *request), response); });
}

grpc::Status LinearLogpService::TouchSession(grpc::ServerContext* context, const v1::TouchSessionRequest* request,
                                             v1::GradientSession* response) {
  return calls_->Run(context, "TouchSession",
                     [&](const CallContext& call) { return Answer(sessions_->Touch(call, *request), response); });
}

grpc::Status LinearLogpService::DeleteSession(grpc::ServerContext* context, const v1::DeleteSessionRequest* request,
                                              v1::DeleteSessionResponse* response) {
  return calls_->Run(context, "DeleteSession",
                     [&](const CallContext& call) { return Answer(sessions_->Delete(call, *request), response); });
}

grpc::Status LinearLogpService::ZeroSession(grpc::ServerContext* context, const v1::ZeroSessionRequest* request,
                                            v1::GradientSession* response) {
  return calls_->Run(context, "ZeroSession",
                     [&](const CallContext& call) { return Answer(sessions_->Zero(call, *request), response); });
}

grpc::Status LinearLogpService::FetchSession(grpc::ServerContext* context, const v1::FetchSessionRequest* request,
                                             v1::FetchSessionResponse* response) {
  return calls_->Run(context, "FetchSession",
                     [&](const CallContext& call) { return Answer(sessions_->Fetch(call, *request), response); });
}

grpc::Status TensorService::RunPut(grpc::ServerContext* context, PutMessages* stream) {
  return calls_->RunStream(context, "Put", [&](const CallContext& call) -> absl::Status {
    wire::ReceivedMessage<v1::PutRequest> message;
    calls_->Read(context, stream, &message);
    if (!message.status.ok()) return message.status;
    absl::StatusOr<std::unique_ptr<TensorUpload>> upload = handler_->StartPut(call, message.fields, message.data);
    if (!upload.ok()) return upload.status();
    absl::Status status = TakeAll(*calls_, call, context, stream, &message, upload->get());
    if (!status.ok()) return status;
    absl::StatusOr<v1::TensorInfo> info = handler_->FinishPut(call, upload->get());
    if (!info.ok()) return info.status();
    return calls_->Write(context, stream, *info) ? absl::OkStatus() : absl::CancelledError("the caller has gone");
  });
}

grpc::Status TensorService::RunGet(grpc::ServerContext* context, GetMessages* stream) {
  return calls_->RunStream(context, "Get", [&](const CallContext& call) -> absl::Status {
    v1::GetTensorRequest request;
    if (!calls_->Read(context, stream, &request)) return absl::InvalidArgumentError("the request is missing");
    return handler_->Get(call, request, [&](const v1::GetTensorResponse& fields, const wire::Payload& payload) {
      return calls_->Write(context, stream, wire::SentMessage<v1::GetTensorResponse>{&fields, payload});
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

grpc::Status TensorService::Reuse(grpc::ServerContext* context, const v1::ReuseTensorRequest* request,
                                  v1::TensorInfo* response) {
  return calls_->Run(context, "Reuse",
                     [&](const CallContext& call) { return Answer(handler_->Reuse(call, *request), response); });
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
