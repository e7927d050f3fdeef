#include "server/grpc/call.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"
#include "server/grpc/status_conversion.h"

namespace keval::server {
namespace {

absl::Status CheckCaller(grpc::ServerContext* context, const ServingState* state) {
  if (context->deadline() <= std::chrono::system_clock::now()) {
    return absl::DeadlineExceededError("the call's deadline passed");
  }
  if (context->IsCancelled()) return absl::CancelledError("the caller has gone");
  return state->EndStatus();
}

Caller CallerOf(const grpc::ServerContext& context) {
  Caller caller{context.peer(), {}};
  for (const auto& [key, value] : context.client_metadata()) {
    caller.metadata.emplace(std::string(key.data(), key.size()), std::string(value.data(), value.size()));
  }
  return caller;
}

// A refusal is the caller's business; what the server itself could not do is the operator's.
spdlog::level::level_enum LevelOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDataLoss:
      return spdlog::level::err;
    default:
      return spdlog::level::debug;
  }
}

}  // namespace

grpc::Status CallRunner::Run(grpc::ServerContext* context, absl::string_view rpc,
                             absl::FunctionRef<absl::Status(const CallContext&)> body, WhileDraining draining) const {
  const absl::Status status = RunBody(context, body, draining);
  if (!status.ok()) {
    spdlog::log(LevelOf(status), "{} from {}: {}: {}", std::string(rpc), PrintableText(context->peer(), 128),
                absl::StatusCodeToString(status.code()), PrintableText(status.message(), 1024));
  }
  return ToGrpc(status, context);
}

absl::Status CallRunner::RunBody(grpc::ServerContext* context, absl::FunctionRef<absl::Status(const CallContext&)> body,
                                 WhileDraining draining) const {
  std::optional<ServingState::Ticket> ticket;
  if (draining == WhileDraining::kRefuse) {
    absl::StatusOr<ServingState::Ticket> entered = state_->Enter();
    if (!entered.ok()) return entered.status();
    ticket.emplace(*std::move(entered));
  }
  absl::StatusOr<std::string> principal = principals_->Identify(CallerOf(*context));
  if (!principal.ok()) return principal.status();
  return body({*std::move(principal), [context, state = state_] { return CheckCaller(context, state); }});
}

}  // namespace keval::server
