#include "server/grpc/call.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/field_error.h"
#include "base/number.h"
#include "base/text.h"
#include "server/grpc/status_conversion.h"

namespace keval::server {
namespace {

constexpr std::int64_t kStreamRetryDelayMs = 1000;

absl::Status CheckCaller(grpc::ServerContext* context, const ServingState* state) {
  if (context->deadline() <= std::chrono::system_clock::now()) {
    return absl::DeadlineExceededError("the call's deadline passed");
  }
  if (context->IsCancelled()) return absl::CancelledError("the caller has gone");
  return state->EndStatus();
}

// What Caller::certificate_name holds. Listeners verify every certificate that they ask for.
std::string CertificateName(const grpc::AuthContext& connection) {
  for (const char* const property : {GRPC_PEER_URI_PROPERTY_NAME, GRPC_PEER_EMAIL_PROPERTY_NAME,
                                     GRPC_PEER_DNS_PROPERTY_NAME, GRPC_X509_CN_PROPERTY_NAME}) {
    const std::vector<grpc::string_ref> names = connection.FindPropertyValues(property);
    if (!names.empty()) return {names.front().data(), names.front().size()};
  }
  return "";
}

Caller CallerOf(const grpc::ServerContext& context) {
  Caller caller{context.peer(), {}, ""};
  if (const auto connection = context.auth_context(); connection != nullptr) {
    caller.certificate_name = CertificateName(*connection);
  }
  for (const auto& [key, value] : context.client_metadata()) {
    caller.metadata.emplace(std::string(key.data(), key.size()), std::string(value.data(), value.size()));
  }
  return caller;
}

// A name for the log, which has a blank between its words.
std::string PrintableWord(absl::string_view text) {
  const std::string word = absl::StrReplaceAll(PrintableText(text, 128), {{" ", "_"}});
  return word.empty() ? "-" : word;
}

// A refusal is the caller's business; what the server itself could not do is the operator's.
spdlog::level::level_enum LevelOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDataLoss:
      return spdlog::level::err;
    default:
      return spdlog::level::info;
  }
}

struct AnsweredCall {
  absl::string_view rpc;
  std::chrono::steady_clock::duration duration;
  std::string principal;  // Empty: the call was refused before anybody was known.
  std::string peer;
};

// One line. Message and names come from callers in part.
void Log(const AnsweredCall& call, const absl::Status& status) {
  const spdlog::level::level_enum level = LevelOf(status);
  if (!spdlog::should_log(level)) return;
  const double ms = std::chrono::duration<double, std::milli>(call.duration).count();
  std::string line =
      absl::StrCat("call=", call.rpc, " code=", absl::StatusCodeToString(status.code()), " ms=", FixedText(ms, 3),
                   " principal=", PrintableWord(call.principal), " peer=", PrintableWord(call.peer));
  if (!status.ok()) absl::StrAppend(&line, " message=", PrintableText(status.message(), 1024));
  spdlog::log(level, "{}", line);
}

}  // namespace

grpc::Status CallRunner::Run(grpc::ServerContext* context, absl::string_view rpc,
                             absl::FunctionRef<absl::Status(const CallContext&)> body, WhileDraining draining) const {
  const auto start = std::chrono::steady_clock::now();
  std::string principal;
  const absl::Status status = RunBody(context, body, draining, &principal);
  Log({rpc, std::chrono::steady_clock::now() - start, std::move(principal), context->peer()}, status);
  return ToGrpc(status, context);
}

grpc::Status CallRunner::RunStream(grpc::ServerContext* context, absl::string_view rpc,
                                   absl::FunctionRef<absl::Status(const CallContext&)> body) const {
  return Run(context, rpc, [&](const CallContext& call) -> absl::Status {
    const int others = streams_.fetch_add(1);
    const absl::Cleanup leave = [this] { streams_.fetch_sub(1); };
    if (others >= max_streams_) {
      return WithRetryDelayMs(
          absl::ResourceExhaustedError(absl::StrCat("streams: ", max_streams_, " are open, the most at once")),
          kStreamRetryDelayMs);
    }
    return body(call);
  });
}

absl::Status CallRunner::RunBody(grpc::ServerContext* context, absl::FunctionRef<absl::Status(const CallContext&)> body,
                                 WhileDraining draining, std::string* principal) const {
  std::optional<ServingState::Ticket> ticket;
  if (draining == WhileDraining::kRefuse) {
    absl::StatusOr<ServingState::Ticket> entered = state_->Enter();
    if (!entered.ok()) return entered.status();
    ticket.emplace(*std::move(entered));
  }
  absl::StatusOr<std::string> identified = principals_->Identify(CallerOf(*context));
  if (!identified.ok()) return identified.status();
  *principal = *identified;
  return body({*std::move(identified), [context, state = state_] { return CheckCaller(context, state); }});
}

}  // namespace keval::server
