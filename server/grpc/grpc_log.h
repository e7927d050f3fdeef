// gRPC's own log lines, among ours.
#ifndef KEVAL_SERVER_GRPC_GRPC_LOG_H_
#define KEVAL_SERVER_GRPC_GRPC_LOG_H_

namespace keval::server {

// Sends them to spdlog at level debug, whatever gRPC calls them: it says ERROR of much that is a peer's everyday doing.
// Once in a process, before gRPC is used.
void RouteGrpcLog();

}  // namespace keval::server

#endif  // KEVAL_SERVER_GRPC_GRPC_LOG_H_
