// The gRPC services: each method passes its call to a handler through CallRunner and adds nothing of its own.
#ifndef KEVAL_SERVER_GRPC_SERVICES_H_
#define KEVAL_SERVER_GRPC_SERVICES_H_

#include <grpcpp/support/sync_stream.h>

#include "keval/v1/linear_logp.grpc.pb.h"
#include "keval/v1/server_info.grpc.pb.h"
#include "keval/v1/tensor.grpc.pb.h"
#include "server/contract_handler.h"
#include "server/grpc/call.h"
#include "server/linear_logp_handler.h"
#include "server/server_info_handler.h"
#include "server/session_handler.h"
#include "server/tensor_handler.h"
#include "wire/message.h"

namespace keval::server {

// The methods that carry tensor bytes are not the generated ones, which would copy them through protobuf: each
// service's constructor puts its own in their place, over wire/message.h's messages.
template <typename Response, typename Request>
using PayloadStream = grpc::ServerReaderWriter<wire::SentMessage<Response>, wire::ReceivedMessage<Request>>;

// Each is thread-safe and owns nothing it is given, all of which must outlive it. One instance for each grpc::Server.

class LinearLogpService final : public v1::LinearLogpService::Service {
 public:
  LinearLogpService(const CallRunner* calls, LinearLogpHandler* handler, SessionHandler* sessions,
                    ContractHandler* contract);

  grpc::Status Plan(grpc::ServerContext* context, const v1::PlanRequest* request, v1::PlanResponse* response) override;
  grpc::Status Forward(grpc::ServerContext* context, const v1::ForwardRequest* request,
                       v1::ForwardResponse* response) override;
  grpc::Status Gradient(grpc::ServerContext* context, const v1::GradientRequest* request,
                        v1::GradientResponse* response) override;
  grpc::Status CheckContract(grpc::ServerContext* context, const v1::CheckContractRequest* request,
                             grpc::ServerWriter<v1::ContractRow>* writer) override;
  grpc::Status CreateSession(grpc::ServerContext* context, const v1::CreateSessionRequest* request,
                             v1::GradientSession* response) override;
  grpc::Status GetSession(grpc::ServerContext* context, const v1::GetSessionRequest* request,
                          v1::GradientSession* response) override;
  grpc::Status ListSessions(grpc::ServerContext* context, const v1::ListSessionsRequest* request,
                            v1::ListSessionsResponse* response) override;
  grpc::Status TouchSession(grpc::ServerContext* context, const v1::TouchSessionRequest* request,
                            v1::GradientSession* response) override;
  grpc::Status DeleteSession(grpc::ServerContext* context, const v1::DeleteSessionRequest* request,
                             v1::DeleteSessionResponse* response) override;
  grpc::Status ZeroSession(grpc::ServerContext* context, const v1::ZeroSessionRequest* request,
                           v1::GradientSession* response) override;
  grpc::Status FetchSession(grpc::ServerContext* context, const v1::FetchSessionRequest* request,
                            v1::FetchSessionResponse* response) override;

 private:
  using GradientMessages = PayloadStream<v1::StreamGradientResponse, v1::StreamGradientRequest>;
  grpc::Status RunStreamGradient(grpc::ServerContext* context, GradientMessages* stream);

  const CallRunner* const calls_;
  LinearLogpHandler* const handler_;
  SessionHandler* const sessions_;
  ContractHandler* const contract_;
};

class TensorService final : public v1::TensorService::Service {
 public:
  TensorService(const CallRunner* calls, TensorHandler* handler);

  grpc::Status Stat(grpc::ServerContext* context, const v1::StatTensorRequest* request,
                    v1::TensorInfo* response) override;
  grpc::Status List(grpc::ServerContext* context, const v1::ListTensorsRequest* request,
                    v1::ListTensorsResponse* response) override;
  grpc::Status Touch(grpc::ServerContext* context, const v1::TouchTensorRequest* request,
                     v1::TensorInfo* response) override;
  grpc::Status Delete(grpc::ServerContext* context, const v1::DeleteTensorRequest* request,
                      v1::DeleteTensorResponse* response) override;
  grpc::Status Reuse(grpc::ServerContext* context, const v1::ReuseTensorRequest* request,
                     v1::TensorInfo* response) override;

 private:
  using PutMessages = grpc::ServerReaderWriter<v1::TensorInfo, wire::ReceivedMessage<v1::PutRequest>>;
  using GetMessages = grpc::ServerReaderWriter<wire::SentMessage<v1::GetTensorResponse>, v1::GetTensorRequest>;
  grpc::Status RunPut(grpc::ServerContext* context, PutMessages* stream);
  grpc::Status RunGet(grpc::ServerContext* context, GetMessages* stream);

  const CallRunner* const calls_;
  TensorHandler* const handler_;
};

class ServerInfoService final : public v1::ServerInfoService::Service {
 public:
  ServerInfoService(const CallRunner* calls, ServerInfoHandler* handler) : calls_(calls), handler_(handler) {}

  grpc::Status GetServerInfo(grpc::ServerContext* context, const v1::GetServerInfoRequest* request,
                             v1::ServerInfo* response) override;

 private:
  const CallRunner* const calls_;
  ServerInfoHandler* const handler_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_GRPC_SERVICES_H_
