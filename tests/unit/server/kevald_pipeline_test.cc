// StreamGradient computed while hidden arrives, over a fake device whose grad_hidden is hidden itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/sha256.h"
#include "keval/v1/server_info.grpc.pb.h"
#include "tests/unit/server/kevald_fixture.h"

namespace keval::server {
namespace {

using ::testing::HasSubstr;

class PipelineTest : public KevaldTest {
 protected:
  PipelineTest() { control_->takes_chunks = true; }

  // Two tokens a chunk.
  static v1::StreamGradientRequest First(std::int64_t tokens, bool interleave) {
    v1::StreamGradientRequest message;
    *message.mutable_header() = Header(tokens);
    message.mutable_header()->mutable_options()->set_chunk_elems(2 * kVocab);
    message.mutable_header()->set_interleave(interleave);
    return message;
  }
  static std::int64_t SmallBytes(std::int64_t tokens) { return 8 * tokens + 4 * kVocab + 4 * kVocab * kHidden; }
  // targets, grad_logp, bias and weight, a frame each.
  static std::vector<v1::StreamGradientRequest> Small(std::int64_t tokens) {
    std::vector<v1::StreamGradientRequest> messages;
    std::int64_t offset = 0;
    for (const std::int64_t size : {4 * tokens, 4 * tokens, 4 * kVocab, 4 * kVocab * kHidden}) {
      messages.push_back(Frame(offset, std::string(static_cast<std::size_t>(size), '\0')));
      offset += size;
    }
    return messages;
  }
  static v1::StreamGradientRequest Frame(std::int64_t offset, const std::string& data) {
    v1::StreamGradientRequest message;
    message.set_offset(static_cast<std::uint64_t>(offset));
    message.set_data(data);
    return message;
  }
  static std::string Hidden(std::int64_t tokens) {
    std::string hidden(static_cast<std::size_t>(4 * kHidden * tokens), '\0');
    for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = static_cast<char>(i * 31 + 1);
    return hidden;
  }
  static std::vector<v1::StreamGradientRequest> Whole(std::int64_t tokens, bool interleave) {
    std::vector<v1::StreamGradientRequest> messages = {First(tokens, interleave)};
    for (v1::StreamGradientRequest& message : Small(tokens)) messages.push_back(std::move(message));
    messages.push_back(Frame(SmallBytes(tokens), Hidden(tokens)));
    return messages;
  }
  v1::QueueInfo Queue() {
    v1::ServerInfo info;
    grpc::ClientContext context;
    EXPECT_TRUE(v1::ServerInfoService::NewStub(channel_)->GetServerInfo(&context, {}, &info).ok());
    return info.queue();
  }
  // A cancelled call ends on the server a little after it did here.
  void ExpectNothingLeft() {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while ((control_->open > 0 || Queue().queued_bytes() > 0) && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    EXPECT_EQ(control_->open, 0);
    EXPECT_EQ(Queue().queued_bytes(), 0);
  }
};

TEST_F(PipelineTest, GradHiddenComesBackWhileHiddenIsStillBeingSent) {
  Start();
  constexpr std::int64_t kN = 7;  // The last chunk has one token.
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const auto stream = linear_logp_->StreamGradient(&context);
  ASSERT_TRUE(stream->Write(First(kN, true)));
  for (const v1::StreamGradientRequest& message : Small(kN)) ASSERT_TRUE(stream->Write(message));
  const std::string hidden = Hidden(kN);
  const std::size_t three_tokens = 3 * 4 * kHidden;
  ASSERT_TRUE(stream->Write(Frame(SmallBytes(kN), hidden.substr(0, three_tokens))));

  std::string answer(4 * kN + hidden.size() + 4 * kVocab * kHidden + 4 * kVocab, '?');
  std::string in_order;
  const auto take = [&](const v1::StreamGradientResponse& response) {
    ASSERT_LE(response.offset() + response.data().size(), answer.size());
    answer.replace(response.offset(), response.data().size(), response.data());
    in_order += response.data();
  };
  v1::StreamGradientResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.header().grad_hidden().spec().shape(0), kN);
  for (int i = 0; i < 2; ++i) {  // logp and grad_hidden of the first chunk: the rest is not even sent.
    ASSERT_TRUE(stream->Read(&response));
    take(response);
  }
  EXPECT_EQ(answer.substr(4 * kN, 2 * 4 * kHidden), hidden.substr(0, 2 * 4 * kHidden));
  ASSERT_TRUE(
      stream->Write(Frame(SmallBytes(kN) + static_cast<std::int64_t>(three_tokens), hidden.substr(three_tokens))));
  stream->WritesDone();
  v1::StreamGradientDone done;
  while (stream->Read(&response)) {
    take(response);
    if (response.has_done()) done = response.done();
  }
  const grpc::Status status = stream->Finish();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(answer.substr(0, 4 * kN),
            std::string(8, '\0') + std::string(8, '\1') + std::string(8, '\2') + std::string(4, '\3'));
  EXPECT_EQ(answer.substr(4 * kN, hidden.size()), hidden);
  EXPECT_EQ(answer.substr(4 * kN + hidden.size()), std::string(4 * kVocab * kHidden + 4 * kVocab, kFakeByte));
  EXPECT_EQ(done.sha256(), Sha256Bytes(in_order));
  EXPECT_EQ(done.dispatch().chunks(), 4);
  EXPECT_GT(done.timing().compute_ns(), 0);
  ExpectNothingLeft();
}

TEST_F(PipelineTest, WithoutInterleavingTheAnswerIsInOrderAndAfterTheHalfClose) {
  Start();
  constexpr std::int64_t kN = 7;
  const StreamResult result = Stream(Whole(kN, false));
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  std::string payload;
  for (const v1::StreamGradientResponse& message : result.messages) {
    if (message.data().empty()) continue;
    EXPECT_EQ(message.offset(), payload.size());
    payload += message.data();
  }
  EXPECT_EQ(payload.substr(4 * kN, Hidden(kN).size()), Hidden(kN));
  EXPECT_EQ(result.messages.back().done().sha256(), Sha256Bytes(payload));
  EXPECT_EQ(control_->chunks, 4);
}

TEST_F(PipelineTest, MemoryIsBoundedHoweverManyTokensThereAre) {
  ServerOptions options;
  options.max_queued_bytes = 64 << 10;
  Start(options);
  constexpr std::int64_t kN = 5000;  // 80 kB of hidden and as much of its gradient.
  v1::ErrorDetail detail;
  EXPECT_EQ(Stream(Whole(kN, false)).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);

  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  const auto stream = linear_logp_->StreamGradient(&context);
  std::thread writer([&] {
    for (const v1::StreamGradientRequest& message : Whole(kN, true)) stream->Write(message);
    stream->WritesDone();
  });
  std::int64_t bytes = 0;
  for (v1::StreamGradientResponse response; stream->Read(&response);) bytes += std::ssize(response.data());
  writer.join();
  const grpc::Status status = stream->Finish();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(bytes, 4 * kN + 4 * kN * kHidden + 4 * kVocab * kHidden + 4 * kVocab);
  ExpectNothingLeft();
}

TEST_F(PipelineTest, AClientThatDoesNotReadHoldsNeitherTheDeviceNorMuchMemory) {
  Start();
  constexpr std::int64_t kN = 2'000'000;  // 32 MB of gradient: more than flow control lets out.
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(100));
  const auto stream = linear_logp_->StreamGradient(&context);
  std::atomic<bool> writing = true;
  std::thread writer([&] {
    v1::StreamGradientRequest first = First(kN, true);
    first.mutable_header()->mutable_options()->set_chunk_elems(10000 * kVocab);
    bool well = stream->Write(first);
    std::int64_t offset = 0;
    const std::int64_t total = SmallBytes(kN) + 4 * kHidden * kN;
    // Frames lie within one tensor.
    for (const std::int64_t end : {4 * kN, 8 * kN, 8 * kN + 4 * kVocab, SmallBytes(kN), total}) {
      while (well && offset < end) {
        const std::int64_t size = std::min<std::int64_t>(1 << 20, end - offset);
        well = stream->Write(Frame(offset, std::string(static_cast<std::size_t>(size), '\0')));
        offset += size;
      }
    }
    writing = false;
  });
  // Until nothing moves any more.
  int chunks = -1;
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while ((chunks < 1 || control_->chunks > chunks) && absl::Now() < deadline) {
    chunks = control_->chunks;
    absl::SleepFor(absl::Milliseconds(500));
  }
  EXPECT_LT(control_->chunks, 200);                                  // Of 200.
  EXPECT_TRUE(writing);                                              // Its own sending waits too.
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Gradient(Unary()).ok());  // The device answers others.
  EXPECT_LT(Queue().queued_bytes(), 40 << 20);
  context.TryCancel();
  writer.join();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  ExpectNothingLeft();
}

TEST_F(PipelineTest, AFailedChunkEndsTheCallWithItsReason) {
  control_->compute = [this](const linear_logp::ContinueCheck&) {
    return control_->chunks == 2 ? absl::ResourceExhaustedError("memory of device cpu: 5 bytes needed, 0 free")
                                 : absl::OkStatus();
  };
  Start();
  for (const bool interleave : {false, true}) {
    control_->chunks = 0;
    const StreamResult result = Stream(Whole(9, interleave));
    EXPECT_EQ(result.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << result.status.error_message();
    EXPECT_THAT(result.status.error_message(), HasSubstr("5 bytes needed"));
  }
  ExpectNothingLeft();
}

TEST_F(PipelineTest, AWrongDigestAndAnEarlyEndAreRefusedAfterTheFirstChunksWereSent) {
  Start();
  for (const bool interleave : {false, true}) {
    std::vector<v1::StreamGradientRequest> wrong = Whole(9, interleave);
    wrong.emplace_back();
    wrong.back().mutable_trailer()->set_sha256(std::string(32, 'x'));
    StreamResult result = Stream(wrong);
    EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << result.status.error_message();
    EXPECT_EQ(result.detail.field(), "sha256");
    std::vector<v1::StreamGradientRequest> early = Whole(9, interleave);
    early.back().mutable_data()->resize(100);
    result = Stream(early);
    EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << result.status.error_message();
    EXPECT_EQ(result.detail.field(), "hidden");
    std::vector<v1::StreamGradientRequest> bad_target = Whole(9, interleave);
    bad_target[1].mutable_data()->at(0) = 99;
    result = Stream(bad_target);
    EXPECT_EQ(result.detail.field(), "targets");
    std::string payload;
    std::vector<v1::StreamGradientRequest> right = Whole(9, interleave);
    for (const v1::StreamGradientRequest& message : right) payload += message.data();
    right.emplace_back();
    right.back().mutable_trailer()->set_sha256(Sha256Bytes(payload));
    EXPECT_TRUE(Stream(right).status.ok());
  }
  ExpectNothingLeft();
}

// Seeded: a failure comes again.
TEST_F(PipelineTest, ACancelAtAnyPointLeavesNothing) {
  Start();
  std::mt19937 random(5);
  for (int i = 0; i < 100; ++i) {
    grpc::ClientContext context;
    const auto stream = linear_logp_->StreamGradient(&context);
    std::thread canceller([&context, micros = random() % 3000] {
      absl::SleepFor(absl::Microseconds(micros));
      context.TryCancel();
    });
    const std::vector<v1::StreamGradientRequest> messages = Whole(101, i % 2 == 0);
    std::thread writer([&] {
      for (const v1::StreamGradientRequest& message : messages) {
        if (!stream->Write(message)) return;
      }
      stream->WritesDone();
    });
    for (v1::StreamGradientResponse response; stream->Read(&response);) continue;
    writer.join();
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::CANCELLED) << status.error_message();
    canceller.join();
  }
  ExpectNothingLeft();
  EXPECT_TRUE(Stream(Whole(9, false)).status.ok());
}

}  // namespace
}  // namespace keval::server
