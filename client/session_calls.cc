// ConnectionImpl's calls about gradient sessions.
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "base/field_error.h"
#include "base/sha256.h"
#include "client/connection_impl.h"
#include "client/gradient_request.h"

namespace keval {
namespace {

// A call's own drawing, where its caller has no id for it.
std::string RandomId() { return absl::HexStringToBytes(RandomHex128()); }

}  // namespace

absl::StatusOr<v1::Operand> ConnectionImpl::ToOperand(absl::string_view name, const Operand& operand,
                                                      std::int64_t inline_bytes, const CallOptions& options,
                                                      std::vector<std::string>* stored) {
  v1::Operand message;
  if (!operand.handle().empty()) {
    message.set_handle(operand.handle());
    return message;
  }
  std::deque<Tensor> copies;
  const auto bytes = Contiguous(name, operand.view(), &copies);
  if (!bytes.ok()) return bytes.status();
  *message.mutable_spec() = ToProto(operand.view());
  if (static_cast<std::int64_t>(bytes->size()) <= inline_bytes) {
    message.set_data(bytes->data(), bytes->size());
    return message;
  }
  const auto info =
      PutTensor({operand.view().dtype, operand.view().shape, {}, bytes->data()}, absl::ZeroDuration(), options);
  if (!info.ok()) return info.status();
  message.set_handle(info->handle());
  stored->push_back(info->handle());
  return message;
}

absl::StatusOr<v1::GradientSession> ConnectionImpl::CreateSession(const SessionParams& params,
                                                                  const CallOptions& options) {
  if (!params.weight.given()) return InvalidField("weight", "what is left out", "given");
  const auto max_unary_bytes = MaxUnaryBytes(options);
  if (!max_unary_bytes.ok()) return max_unary_bytes.status();
  // What the session uses stays without its handle.
  std::vector<std::string> stored;
  const absl::Cleanup let_go = [&] {
    for (const std::string& handle : stored) static_cast<void>(DeleteTensor(handle, CallOptions()));
  };
  v1::CreateSessionRequest request;
  request.set_device(params.device);
  request.set_lease_ms(absl::ToInt64Milliseconds(params.lease));
  auto weight = ToOperand("weight", params.weight, *max_unary_bytes / 2, options, &stored);
  if (!weight.ok()) return weight.status();
  *request.mutable_weight() = *std::move(weight);
  if (params.bias.given()) {
    auto bias = ToOperand("bias", params.bias, *max_unary_bytes / 2, options, &stored);
    if (!bias.ok()) return bias.status();
    *request.mutable_bias() = *std::move(bias);
  }
  // A second attempt would open a second session. The weight's copying to a device takes its time.
  return Call(options, Kind::kLong, Repeatable::kNo,
              [&](const Attempt& attempt) { return stub_->CreateSession(attempt, request); });
}

absl::StatusOr<v1::GradientSession> ConnectionImpl::GetSession(const std::string& session, const CallOptions& options) {
  v1::GetSessionRequest request;
  request.set_session(session);
  return Call(options, Kind::kControl, Repeatable::kYes,
              [&](const Attempt& attempt) { return stub_->GetSession(attempt, request); });
}

absl::StatusOr<std::vector<v1::GradientSession>> ConnectionImpl::ListSessions(const CallOptions& options) {
  std::vector<v1::GradientSession> sessions;
  v1::ListSessionsRequest request;
  request.set_page_size(kPageSize);
  do {
    const auto page = Call(options, Kind::kControl, Repeatable::kYes,
                           [&](const Attempt& attempt) { return stub_->ListSessions(attempt, request); });
    if (!page.ok()) return page.status();
    sessions.insert(sessions.end(), page->sessions().begin(), page->sessions().end());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return sessions;
}

absl::StatusOr<v1::GradientSession> ConnectionImpl::TouchSession(const std::string& session, absl::Duration lease,
                                                                 const CallOptions& options) {
  v1::TouchSessionRequest request;
  request.set_session(session);
  request.set_lease_ms(absl::ToInt64Milliseconds(lease));
  return Call(options, Kind::kControl, Repeatable::kYes,
              [&](const Attempt& attempt) { return stub_->TouchSession(attempt, request); });
}

absl::Status ConnectionImpl::DeleteSession(const std::string& session, const CallOptions& options) {
  v1::DeleteSessionRequest request;
  request.set_session(session);
  // A second attempt would find nothing and report NOT_FOUND for what worked.
  return Call(options, Kind::kControl, Repeatable::kNo,
              [&](const Attempt& attempt) { return stub_->DeleteSession(attempt, request); })
      .status();
}

absl::StatusOr<v1::GradientSession> ConnectionImpl::ZeroSession(const std::string& session,
                                                                const CallOptions& options) {
  v1::ZeroSessionRequest request;
  request.set_session(session);
  request.set_request_id(RandomId());
  return Call(options, Kind::kLong, Repeatable::kYes,
              [&](const Attempt& attempt) { return stub_->ZeroSession(attempt, request); });
}

absl::StatusOr<SessionSums> ConnectionImpl::FetchSession(const std::string& session, bool reset,
                                                         const std::string& request_id, const CallOptions& options) {
  v1::FetchSessionRequest request;
  request.set_session(session);
  request.set_reset(reset);
  if (reset) request.set_request_id(request_id.empty() ? RandomId() : request_id);
  auto fetched = Call(options, Kind::kLong, Repeatable::kYes,
                      [&](const Attempt& attempt) { return stub_->FetchSession(attempt, request); });
  if (!fetched.ok()) return fetched.status();
  SessionSums sums;
  auto weight = GetTensor(fetched->grad_weight().handle(), options);
  if (!weight.ok()) return weight.status();
  sums.grad_weight = *std::move(weight);
  if (fetched->has_grad_bias()) {
    auto bias = GetTensor(fetched->grad_bias().handle(), options);
    if (!bias.ok()) return bias.status();
    sums.grad_bias = *std::move(bias);
  }
  // Both are here. Where this fails their lease ends them.
  static_cast<void>(DeleteTensor(fetched->grad_weight().handle(), options));
  if (fetched->has_grad_bias()) static_cast<void>(DeleteTensor(fetched->grad_bias().handle(), options));
  sums.session = std::move(*fetched->mutable_session());
  return sums;
}

}  // namespace keval
