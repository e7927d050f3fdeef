// What every RPC goes through on its way to a handler: who calls, whether the server takes calls, how long it may last.
#ifndef KEVAL_SERVER_GRPC_CALL_H_
#define KEVAL_SERVER_GRPC_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/call_context.h"
#include "server/grpc/stall_watch.h"
#include "server/principal.h"
#include "server/serving_state.h"

namespace keval::server {

// Shared by the adapters of one process. Thread-safe; owns nothing it is given, all of which must outlive it.
class CallRunner {
 public:
  // At most `max_streams` calls run by RunStream at a time.
  CallRunner(const PrincipalSource* principals, ServingState* state, StallWatch* stalls, int max_streams)
      : principals_(principals), state_(state), stalls_(stalls), max_streams_(max_streams) {}

  enum class WhileDraining : std::uint8_t { kRefuse, kAnswer };

  // Runs `body` for a call, converts its status, and logs the call: name, code, duration, principal, peer, and a
  // failure's message, all made printable. `rpc` names it there.
  grpc::Status Run(grpc::ServerContext* context, absl::string_view rpc,
                   absl::FunctionRef<absl::Status(const CallContext&)> body,
                   WhileDraining draining = WhileDraining::kRefuse) const;

  // Run for a call that lasts as long as its peer likes and holds a thread meanwhile: RESOURCE_EXHAUSTED with a retry
  // delay where there are as many as may be, so that threads are left for the rest.
  grpc::Status RunStream(grpc::ServerContext* context, absl::string_view rpc,
                         absl::FunctionRef<absl::Status(const CallContext&)> body) const;

  // One message of the peer, or to it; false at the stream's end. A peer that stalls ends the call: see StallWatch. Who
  // reads message after message keeps `patience` for all of them and renews it at bytes.
  template <typename Stream, typename Message>
  bool Read(grpc::ServerContext* context, Stream* stream, Message* message, StallWatch::Patience* patience) const {
    const StallWatch::Guard guard(stalls_, context, patience);
    return stream->Read(message);
  }
  template <typename Stream, typename Message>
  bool Read(grpc::ServerContext* context, Stream* stream, Message* message) const {
    StallWatch::Patience patience;
    return Read(context, stream, message, &patience);
  }
  template <typename Stream, typename Message>
  bool Write(grpc::ServerContext* context, Stream* stream, const Message& message) const {
    StallWatch::Patience patience;  // None of ours is empty.
    const StallWatch::Guard guard(stalls_, context, &patience);
    return stream->Write(message);
  }

 private:
  // `principal` is set as soon as it is known.
  absl::Status RunBody(grpc::ServerContext* context, absl::FunctionRef<absl::Status(const CallContext&)> body,
                       WhileDraining draining, std::string* principal) const;

  const PrincipalSource* const principals_;
  ServingState* const state_;
  StallWatch* const stalls_;
  const int max_streams_;
  mutable std::atomic<int> streams_ = 0;
};

// Moves a value into an RPC's response.
template <typename Response>
absl::Status Answer(absl::StatusOr<Response> result, Response* response) {
  if (!result.ok()) return result.status();
  *response = *std::move(result);
  return absl::OkStatus();
}

}  // namespace keval::server

#endif  // KEVAL_SERVER_GRPC_CALL_H_
