// Calls about gradient sessions for tests over KevaldTest's server.
#ifndef KEVAL_TESTS_UNIT_SERVER_SESSION_FIXTURE_H_
#define KEVAL_TESTS_UNIT_SERVER_SESSION_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "keval/v1/server_info.grpc.pb.h"
#include "tests/unit/server/kevald_fixture.h"

namespace keval::server {

class SessionTest : public KevaldTest {
 protected:
  // An id of 16 bytes.
  static std::string Id(int number) {
    std::string id = std::to_string(number);
    id.resize(16, '.');
    return id;
  }

  template <typename Request, typename Response>
  using Method = grpc::Status (v1::LinearLogpService::Stub::*)(grpc::ClientContext*, const Request&, Response*);
  template <typename Request, typename Response>
  grpc::Status Call(Method<Request, Response> method, const Request& request, Response* response,
                    v1::ErrorDetail* detail = nullptr, const std::string& principal = "ann") {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    context.AddMetadata("x-principal", principal);
    grpc::Status status = (linear_logp_.get()->*method)(&context, request, response);
    if (detail != nullptr) *detail = DetailOf(context);
    return status;
  }

  // Of [kVocab, kHidden] with a bias, inline.
  static v1::CreateSessionRequest CreateRequest() {
    v1::CreateSessionRequest request;
    SetSpec(request.mutable_weight(), v1::DATA_TYPE_FLOAT32, {kVocab, kHidden});
    request.mutable_weight()->set_data(std::string(4 * kVocab * kHidden, '\0'));
    SetSpec(request.mutable_bias(), v1::DATA_TYPE_FLOAT32, {kVocab});
    request.mutable_bias()->set_data(std::string(4 * kVocab, '\0'));
    return request;
  }
  std::string Create() {
    v1::GradientSession session;
    const grpc::Status status = Call(&v1::LinearLogpService::Stub::CreateSession, CreateRequest(), &session);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return session.session();
  }

  // kTokens tokens.
  static v1::GradientRequest Batch(const std::string& session, int id) {
    v1::GradientRequest request = Unary();
    request.mutable_inputs()->clear_weight();
    request.mutable_inputs()->clear_bias();
    request.mutable_session_batch()->set_session(session);
    request.mutable_session_batch()->set_batch_id(Id(id));
    return request;
  }
  grpc::Status Add(const v1::GradientRequest& request, v1::GradientResponse* response = nullptr,
                   v1::ErrorDetail* detail = nullptr, const std::string& principal = "ann") {
    v1::GradientResponse ignored;
    return Call(&v1::LinearLogpService::Stub::Gradient, request, response == nullptr ? &ignored : response, detail,
                principal);
  }

  // Two tokens a chunk; targets and grad_logp, then hidden.
  static std::vector<v1::StreamGradientRequest> StreamedBatch(const std::string& session, int id, std::int64_t tokens) {
    std::vector<v1::StreamGradientRequest> messages(4);
    v1::GradientRequest* const header = messages[0].mutable_header();
    *header = Header(tokens);
    header->mutable_inputs()->clear_weight();
    header->mutable_inputs()->clear_bias();
    header->mutable_options()->set_chunk_elems(2 * kVocab);
    header->mutable_session_batch()->set_session(session);
    header->mutable_session_batch()->set_batch_id(Id(id));
    std::int64_t offset = 0;
    const std::vector<std::int64_t> sizes = {4 * tokens, 4 * tokens, 4 * kHidden * tokens};
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      messages[i + 1].set_offset(static_cast<std::uint64_t>(offset));
      messages[i + 1].set_data(std::string(static_cast<std::size_t>(sizes[i]), '\0'));
      offset += sizes[i];
    }
    return messages;
  }

  grpc::Status Fetch(const std::string& session, int reset_id, v1::FetchSessionResponse* response,
                     v1::ErrorDetail* detail = nullptr) {
    v1::FetchSessionRequest request;
    request.set_session(session);
    if (reset_id != 0) {
      request.set_reset(true);
      request.set_request_id(Id(reset_id));
    }
    return Call(&v1::LinearLogpService::Stub::FetchSession, request, response, detail);
  }
  std::vector<float> Read(const std::string& handle) {
    grpc::ClientContext context;
    context.AddMetadata("x-principal", "ann");
    v1::GetTensorRequest request;
    request.set_handle(handle);
    const auto reader = tensors_->Get(&context, request);
    std::string bytes;
    v1::GetTensorResponse message;
    while (reader->Read(&message)) bytes += message.data();
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::vector<float> values(bytes.size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    return values;
  }
  // The fake device adds a micro-batch's number of tokens to every element.
  void ExpectSums(const v1::FetchSessionResponse& fetched, float tokens) {
    EXPECT_EQ(Read(fetched.grad_weight().handle()),
              std::vector<float>(static_cast<std::size_t>(kVocab * kHidden), tokens));
    EXPECT_EQ(Read(fetched.grad_bias().handle()), std::vector<float>(static_cast<std::size_t>(kVocab), tokens));
  }
  void ExpectSums(const std::string& session, float tokens) {
    v1::FetchSessionResponse fetched;
    const grpc::Status status = Fetch(session, 0, &fetched);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ExpectSums(fetched, tokens);
  }

  v1::ServerInfo Info() {
    v1::ServerInfo info;
    grpc::ClientContext context;
    EXPECT_TRUE(v1::ServerInfoService::NewStub(channel_)->GetServerInfo(&context, {}, &info).ok());
    return info;
  }
  // A call that was cancelled here ends on the server a little later, and an executor frees a little later still.
  template <typename Condition>
  static bool Eventually(Condition done) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!done()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return true;
  }
};

}  // namespace keval::server

#endif  // KEVAL_TESTS_UNIT_SERVER_SESSION_FIXTURE_H_
