// Gradients by unary call and by stream, right and refused, over a fake device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/sha256.h"
#include "keval/v1/server_info.grpc.pb.h"
#include "tests/unit/server/kevald_fixture.h"

namespace keval::server {
namespace {

using ::testing::HasSubstr;

TEST_F(KevaldTest, UnaryAndStreamGiveTheSameResults) {
  Start();
  v1::GradientResponse unary;
  const grpc::Status status = Gradient(Unary(), &unary);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(unary.logp().data(), std::string(4 * kTokens, kFakeByte));
  EXPECT_EQ(unary.grad_weight().data().size(), 4 * kVocab * kHidden);
  EXPECT_GT(unary.timing().compute_ns(), 0);

  const StreamResult stream = Stream(GoodStream());
  ASSERT_TRUE(stream.status.ok()) << stream.status.error_message();
  ASSERT_EQ(stream.messages.size(), 6);  // Header, four tensors, done.
  std::string payload;
  for (const v1::StreamGradientResponse& message : stream.messages) {
    if (message.data().empty()) continue;
    EXPECT_EQ(message.offset(), payload.size());
    payload += message.data();
  }
  EXPECT_EQ(payload,
            unary.logp().data() + unary.grad_hidden().data() + unary.grad_weight().data() + unary.grad_bias().data());
  EXPECT_TRUE(stream.messages.front().has_header());
  EXPECT_EQ(stream.messages.back().done().sha256(), Sha256Bytes(payload));
}

TEST_F(KevaldTest, OpenStreamsLeaveThreadsForTheRest) {
  Start({.max_threads = 16});
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::StreamGradientRequest, v1::StreamGradientResponse>>> streams;
  for (int i = 0; i < 8; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    streams.push_back(linear_logp_->StreamGradient(contexts.back().get()));
    ASSERT_TRUE(streams.back()->Write(GoodStream().front()));
  }
  // They are eight as soon as a ninth is refused.
  StreamResult refused;
  for (int i = 0; i < 200 && refused.status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED; ++i) {
    refused = Stream({});
  }
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << refused.status.error_message();
  EXPECT_GT(refused.detail.retry_delay_ms(), 0);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::ServerInfo info;
  EXPECT_TRUE(v1::ServerInfoService::NewStub(channel_)->GetServerInfo(&context, {}, &info).ok());
  for (auto& context_of_stream : contexts) context_of_stream->TryCancel();
  for (auto& stream : streams) stream->Finish();
  for (int i = 0; i < 200 && !refused.status.ok(); ++i) refused = Stream(GoodStream());
  EXPECT_TRUE(refused.status.ok()) << refused.status.error_message();
}

TEST_F(KevaldTest, StreamIsRefusedForWhatItLiesAbout) {
  Start();
  struct Case {
    std::string name;
    std::function<void(std::vector<v1::StreamGradientRequest>*)> change;
    std::string field;
  };
  const std::vector<Case> cases = {
      {"no header", [](auto* m) { m->erase(m->begin()); }, "header"},
      {"nothing at all", [](auto* m) { m->clear(); }, "header"},
      {"header twice", [](auto* m) { m->insert(m->begin() + 2, m->front()); }, "header"},
      {"ends early", [](auto* m) { m->pop_back(); }, "hidden"},
      {"ends within a tensor", [](auto* m) { m->back().mutable_data()->resize(4); }, "hidden"},
      {"too much", [](auto* m) { m->back().mutable_data()->append("1234"); }, "data"},
      {"a frame more",
       [](auto* m) {
         m->push_back(m->back());
         m->back().set_offset(m->back().offset() + m->back().data().size());
       },
       "data"},
      {"gap", [](auto* m) { m->back().set_offset(m->back().offset() + 4); }, "offset"},
      {"overlap", [](auto* m) { m->back().set_offset(m->back().offset() - 4); }, "offset"},
      {"offset beyond everything", [](auto* m) { m->back().set_offset(~std::uint64_t{0}); }, "offset"},
      {"wrong digest",
       [](auto* m) {
         m->emplace_back();
         m->back().mutable_trailer()->set_sha256(std::string(32, 'x'));
       },
       "sha256"},
      {"short digest",
       [](auto* m) {
         m->emplace_back();
         m->back().mutable_trailer()->set_sha256("x");
       },
       "sha256"},
      {"frame after the trailer",
       [](auto* m) {
         m->insert(m->end() - 1, v1::StreamGradientRequest());
         (*m)[m->size() - 2].mutable_trailer()->set_sha256(std::string(32, 'x'));
       },
       "trailer"},
      {"target out of range", [](auto* m) { m->at(1).mutable_data()->at(0) = 9; }, "targets"},
      {"wrong width",
       [](auto* m) {
         SetSpec(m->front().mutable_header()->mutable_inputs()->mutable_hidden(), v1::DATA_TYPE_FLOAT32,
                 {kTokens, kHidden + 1});
       },
       "hidden"},
  };
  for (const Case& test : cases) {
    std::vector<v1::StreamGradientRequest> messages = GoodStream();
    test.change(&messages);
    const StreamResult result = Stream(messages);
    EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << test.name << ": " << result.status.error_message();
    EXPECT_EQ(result.detail.field(), test.field) << test.name << ": " << result.status.error_message();
    EXPECT_TRUE(result.messages.empty()) << test.name;
  }
  EXPECT_EQ(control_->calls, 0);
  EXPECT_TRUE(Stream(GoodStream()).status.ok());
}

// Two thousand requests, each with a few wild changes: the answer is a result or a refusal that names its cause, and
// the server goes on. Seeded: a failure comes again.
TEST_F(KevaldTest, WildRequestsGetAStableAnswer) {
  ServerOptions options;
  options.max_queued_bytes = 1 << 20;
  Start(options);
  std::mt19937_64 random(20260301);
  const auto pick = [&random](std::int64_t most) { return static_cast<std::int64_t>(random() % most); };
  const std::vector<std::int64_t> sizes = {
      -1, 0, 1, 3, 4, 5, 1 << 20, std::int64_t{1} << 31, std::int64_t{1} << 40, INT64_MAX, INT64_MIN};
  int answered = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<v1::StreamGradientRequest> messages = GoodStream();
    for (std::int64_t change = pick(4); change > 0; --change) {
      v1::GradientRequest* const header = messages.front().mutable_header();
      v1::LinearLogpInputs* const inputs = header->mutable_inputs();
      v1::Operand* const operand = std::vector<v1::Operand*>{
          inputs->mutable_hidden(), inputs->mutable_weight(), inputs->mutable_bias(), inputs->mutable_targets(),
          inputs->mutable_grad_logp()}[static_cast<std::size_t>(pick(5))];
      v1::StreamGradientRequest& frame = messages[static_cast<std::size_t>(pick(std::ssize(messages)))];
      switch (pick(10)) {
        case 0:
          operand->mutable_spec()->add_shape(sizes[static_cast<std::size_t>(pick(std::ssize(sizes)))]);
          break;
        case 1:
          operand->mutable_spec()->mutable_shape()->Resize(1, sizes[static_cast<std::size_t>(pick(std::ssize(sizes)))]);
          break;
        case 2:
          operand->mutable_spec()->set_dtype(static_cast<v1::DataType>(pick(9)));
          break;
        case 3:
          operand->set_data(std::string(static_cast<std::size_t>(pick(100)), '\xff'));
          break;
        case 4:
          operand->set_handle("tensors/../../etc/passwd");
          break;
        case 5:
          header->mutable_options()->set_chunk_elems(sizes[static_cast<std::size_t>(pick(std::ssize(sizes)))]);
          break;
        case 6:
          header->add_want(static_cast<v1::Want>(pick(6)));
          break;
        case 7:
          frame.set_offset(random());
          break;
        case 8:
          frame.mutable_data()->resize(static_cast<std::size_t>(pick(200)), '\x7f');
          break;
        default:
          std::swap(frame, messages.back());
          break;
      }
    }
    const StreamResult result = Stream(messages);
    if (result.status.ok()) {
      ++answered;
      continue;
    }
    const auto code = result.status.error_code();
    EXPECT_TRUE(code == grpc::StatusCode::INVALID_ARGUMENT || code == grpc::StatusCode::NOT_FOUND ||
                code == grpc::StatusCode::RESOURCE_EXHAUSTED)
        << i << ": " << code << " " << result.status.error_message();
    if (code == grpc::StatusCode::RESOURCE_EXHAUSTED) continue;
    EXPECT_NE(result.detail.field(), "") << i << ": " << result.status.error_message();
  }
  EXPECT_GT(answered, 100);   // Some changes are harmless,
  EXPECT_LT(answered, 1500);  // most are not.
  EXPECT_TRUE(Stream(GoodStream()).status.ok());
}

TEST_F(KevaldTest, RightDigestIsAccepted) {
  Start();
  std::vector<v1::StreamGradientRequest> messages = GoodStream();
  std::string payload;
  for (const v1::StreamGradientRequest& message : messages) payload += message.data();
  messages.emplace_back();
  messages.back().mutable_trailer()->set_sha256(Sha256Bytes(payload));
  EXPECT_TRUE(Stream(messages).status.ok());
}

TEST_F(KevaldTest, ClientThatKeepsWritingHearsARefusedHeader) {
  Start();
  std::vector<v1::StreamGradientRequest> messages(1);
  *messages[0].mutable_header() = Header(1 << 20);
  SetSpec(messages[0].mutable_header()->mutable_inputs()->mutable_hidden(), v1::DATA_TYPE_FLOAT32,
          {1 << 20, kHidden + 1});
  for (int i = 0; i < 1024; ++i) {
    messages.emplace_back();
    messages.back().set_offset(static_cast<std::uint64_t>(i) << 16);
    messages.back().set_data(std::string(1 << 16, '\0'));
  }
  const auto start = std::chrono::steady_clock::now();
  const StreamResult result = Stream(messages);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << result.status.error_message();
  EXPECT_EQ(result.detail.field(), "hidden");
}

TEST_F(KevaldTest, RequestBeyondTheDevicesMemoryIsRefusedAndTheNextSucceeds) {
  Start({}, /*memory_bytes=*/1000);
  std::vector<v1::StreamGradientRequest> messages(1);
  *messages[0].mutable_header() = Header(100000);
  const StreamResult refused = Stream(messages);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << refused.status.error_message();
  EXPECT_THAT(refused.status.error_message(), HasSubstr("bytes needed, at most 1000 free"));
  EXPECT_TRUE(Stream(GoodStream()).status.ok());
}

TEST_F(KevaldTest, RequestBytesAreBoundedAndComeBack) {
  ServerOptions options;
  options.max_queued_bytes = 4096;
  Start(options);
  std::vector<v1::StreamGradientRequest> messages(1);
  *messages[0].mutable_header() = Header(1000);
  const StreamResult refused = Stream(messages);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << refused.status.error_message();
  EXPECT_THAT(refused.status.error_message(), HasSubstr("memory for requests"));
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(Stream(GoodStream()).status.ok());
  v1::ServerInfo info;
  grpc::ClientContext context;
  ASSERT_TRUE(v1::ServerInfoService::NewStub(channel_)->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.queue().queued_bytes(), 0);
  EXPECT_EQ(info.queue().queued_requests(), 0);
}

TEST_F(KevaldTest, StalledUploadIsEndedWithItsReason) {
  ServerOptions options;
  options.stall_timeout_seconds = 1;
  Start(options);
  for (const bool sends_empty_messages : {false, true}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    auto stream = linear_logp_->StreamGradient(&context);
    ASSERT_TRUE(stream->Write(GoodStream().front()));
    while (sends_empty_messages && stream->Write(v1::StreamGradientRequest())) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    v1::StreamGradientResponse response;
    EXPECT_FALSE(stream->Read(&response));  // No half-close: only the server's patience ends this.
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("stalled"));
  }
}

TEST_F(KevaldTest, AnUploadOfFewBytesAtATimeIsNotStalled) {
  ServerOptions options;
  options.stall_timeout_seconds = 2;
  Start(options);
  std::vector<v1::StreamGradientRequest> messages = GoodStream();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  auto stream = linear_logp_->StreamGradient(&context);
  for (const v1::StreamGradientRequest& message : messages) {
    std::this_thread::sleep_for(std::chrono::milliseconds(600));  // All together longer than the limit.
    ASSERT_TRUE(stream->Write(message));
  }
  stream->WritesDone();
  v1::StreamGradientResponse response;
  while (stream->Read(&response)) {
  }
  const grpc::Status status = stream->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

}  // namespace
}  // namespace keval::server
