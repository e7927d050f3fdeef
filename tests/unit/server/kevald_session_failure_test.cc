// Gradient sessions through gRPC, over a fake device: micro-batches that fail, are cancelled, or whose session ends
// under them leave the sums as they were and nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "tests/unit/server/session_fixture.h"

namespace keval::server {
namespace {

using ::testing::HasSubstr;
using Stub = v1::LinearLogpService::Stub;

class SessionFailureTest : public SessionTest {
 protected:
  SessionFailureTest() {
    control_->compute = [this](const linear_logp::ContinueCheck& check) -> absl::Status {
      if (mode_ == Mode::kFail) return absl::ResourceExhaustedError("memory");
      if (mode_ != Mode::kBlock) return absl::OkStatus();
      ++blocked_;
      absl::Status status;
      while ((status = check()).ok() && !released_) absl::SleepFor(absl::Milliseconds(1));
      return status;
    };
  }

  // kBlock: computes until the call's end is noticed, as between two chunks, or until `released_`.
  enum class Mode : std::uint8_t { kUsual, kFail, kBlock };
  std::atomic<Mode> mode_ = Mode::kUsual;
  std::atomic<int> blocked_ = 0;
  std::atomic<bool> released_ = false;
};

TEST_F(SessionFailureTest, AFailedMicroBatchAddsNothingAndItsIdIsStillFree) {
  Start();
  const std::string session = Create();
  mode_ = Mode::kFail;
  EXPECT_EQ(Add(Batch(session, 1)).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  mode_ = Mode::kUsual;
  ExpectSums(session, 0);
  v1::GradientResponse response;
  ASSERT_TRUE(Add(Batch(session, 1), &response).ok());
  EXPECT_FALSE(response.session_batch().repeated());
  EXPECT_EQ(response.session_batch().sequence(), 1);
  ExpectSums(session, kTokens);
}

TEST_F(SessionFailureTest, ACancelledMicroBatchAddsNothing) {
  Start();
  const std::string session = Create();
  mode_ = Mode::kBlock;
  grpc::ClientContext context;
  context.AddMetadata("x-principal", "ann");
  grpc::Status status;
  std::thread client([&] {
    v1::GradientResponse response;
    status = linear_logp_->Gradient(&context, Batch(session, 1), &response);
  });
  EXPECT_TRUE(Eventually([&] { return blocked_ > 0; }));
  context.TryCancel();
  client.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  // A fetch waits behind it on the executor: nothing runs beside this any more.
  ExpectSums(session, 0);
  EXPECT_TRUE(Eventually([&] { return Info().queue().queued_bytes() == 0; }));
}

TEST_F(SessionFailureTest, AStreamThatEndsEarlyAddsNothing) {
  control_->takes_chunks = true;
  Start();
  const std::string session = Create();
  constexpr std::int64_t kN = 7;
  std::vector<v1::StreamGradientRequest> messages = StreamedBatch(session, 1, kN);
  messages.back().mutable_data()->resize(5 * 4 * kHidden);  // Two chunks, and a half.
  for (const bool cancel : {false, true}) {
    grpc::ClientContext context;
    context.AddMetadata("x-principal", "ann");
    const auto stream = linear_logp_->StreamGradient(&context);
    for (const auto& message : messages) ASSERT_TRUE(stream->Write(message));
    if (cancel) {
      context.TryCancel();
    } else {
      stream->WritesDone();
    }
    v1::StreamGradientResponse response;
    while (stream->Read(&response)) EXPECT_FALSE(response.has_done());
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), cancel ? grpc::StatusCode::CANCELLED : grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_TRUE(Eventually([&] { return control_->open == 0 && Info().queue().queued_bytes() == 0; }));
    ExpectSums(session, 0);
  }
  // The same micro-batch, whole.
  grpc::ClientContext context;
  context.AddMetadata("x-principal", "ann");
  const auto stream = linear_logp_->StreamGradient(&context);
  for (const auto& message : StreamedBatch(session, 1, kN)) ASSERT_TRUE(stream->Write(message));
  stream->WritesDone();
  v1::StreamGradientResponse response;
  v1::StreamGradientDone done;
  while (stream->Read(&response)) {
    EXPECT_FALSE(response.header().has_grad_weight());
    if (response.has_done()) done = response.done();
  }
  const grpc::Status status = stream->Finish();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(done.session_batch().sequence(), 1);
  EXPECT_FALSE(done.session_batch().repeated());
  EXPECT_EQ(done.dispatch().chunks(), 4);
  ExpectSums(session, kN);
}

TEST_F(SessionFailureTest, ASessionThatEndsUnderAMicroBatchIsNotFoundAndFreed) {
  for (const bool streamed : {false, true}) {
    kevald_.reset();
    control_->takes_chunks = streamed;
    Start();
    const std::string session = Create();
    v1::DeleteSessionRequest request;
    request.set_session(session);
    v1::DeleteSessionResponse deleted;
    grpc::Status status;
    if (streamed) {
      grpc::ClientContext context;
      context.AddMetadata("x-principal", "ann");
      const auto stream = linear_logp_->StreamGradient(&context);
      std::vector<v1::StreamGradientRequest> messages = StreamedBatch(session, 1, kTokens);
      for (std::size_t i = 0; i + 1 < messages.size(); ++i) ASSERT_TRUE(stream->Write(messages[i]));
      v1::StreamGradientRequest part = messages.back();
      const std::string hidden = part.data();
      part.set_data(hidden.substr(0, 2 * 4 * kHidden));
      ASSERT_TRUE(stream->Write(part));
      EXPECT_TRUE(Eventually([&] { return control_->open == 1; }));
      ASSERT_TRUE(Call(&Stub::DeleteSession, request, &deleted).ok());
      EXPECT_EQ(control_->sessions, 1);  // The stream holds it.
      part.set_offset(part.offset() + part.data().size());
      part.set_data(hidden.substr(2 * 4 * kHidden));
      stream->Write(part);
      stream->WritesDone();
      v1::StreamGradientResponse response;
      while (stream->Read(&response)) EXPECT_FALSE(response.has_done());
      status = stream->Finish();
    } else {
      blocked_ = 0;
      mode_ = Mode::kBlock;
      std::thread client([&] { status = Add(Batch(session, 1)); });
      EXPECT_TRUE(Eventually([&] { return blocked_ > 0; }));
      ASSERT_TRUE(Call(&Stub::DeleteSession, request, &deleted).ok());
      client.join();
      mode_ = Mode::kUsual;
    }
    EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << streamed << ": " << status.error_message();
    EXPECT_TRUE(Eventually([&] { return control_->sessions == 0; }));
    EXPECT_TRUE(Eventually([&] { return Info().tensor_store().used_bytes() == 0; }));
  }
}

TEST_F(SessionFailureTest, TidyingEndsASessionWhoseLeaseHasRunOut) {
  Start();
  v1::CreateSessionRequest create = CreateRequest();
  create.set_lease_ms(1);
  v1::GradientSession session;
  ASSERT_TRUE(Call(&Stub::CreateSession, create, &session).ok());
  EXPECT_TRUE(Eventually([&] {
    kevald_->Tidy();
    return control_->sessions == 0;
  }));
  EXPECT_EQ(Info().tensor_store().sessions(), 0);
  v1::ErrorDetail detail;
  EXPECT_EQ(Add(Batch(session.session(), 1), nullptr, &detail).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(detail.field(), "session");
}

TEST_F(SessionFailureTest, AfterARestartTheClientIsToldSo) {
  Start();
  const std::string session = Create();
  kevald_.reset();
  Start();
  v1::ErrorDetail detail;
  const grpc::Status status = Add(Batch(session, 1), nullptr, &detail);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("restarted"));
  EXPECT_EQ(detail.field(), "session");
}

TEST_F(SessionFailureTest, ACancelledFetchTakesNothing) {
  Start();
  const std::string session = Create();
  ASSERT_TRUE(Add(Batch(session, 1)).ok());
  mode_ = Mode::kBlock;
  std::thread client([&] { static_cast<void>(Add(Batch(session, 2))); });
  EXPECT_TRUE(Eventually([&] { return blocked_ > 0; }));
  // It waits behind the micro-batch, and its caller gives up.
  grpc::ClientContext context;
  context.AddMetadata("x-principal", "ann");
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  v1::FetchSessionRequest request;
  request.set_session(session);
  request.set_reset(true);
  request.set_request_id(Id(100));
  v1::FetchSessionResponse fetched;
  EXPECT_EQ(linear_logp_->FetchSession(&context, request, &fetched).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  released_ = true;
  client.join();
  mode_ = Mode::kUsual;
  ExpectSums(session, 2 * kTokens);
}

}  // namespace
}  // namespace keval::server
