// The whole server in one process over a fake device: gRPC, handlers, executor, stores. No LibTorch, so that
// ThreadSanitizer can watch it.
#include "server/kevald.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/sha256.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "keval/v1/benchmark.grpc.pb.h"
#include "keval/v1/error.pb.h"
#include "keval/v1/linear_logp.grpc.pb.h"
#include "keval/v1/server_info.grpc.pb.h"
#include "keval/v1/tensor.grpc.pb.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/server/fake_backend.h"

namespace keval::server {
namespace {

using grpc::health::v1::HealthCheckResponse;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr std::int64_t kTokens = 3;
constexpr std::int64_t kHidden = 4;
constexpr std::int64_t kVocab = 5;

// The caller says who it is: ownership is tested with this.
class MetadataPrincipalSource final : public PrincipalSource {
 public:
  absl::StatusOr<std::string> Identify(const Caller& caller) const override {
    const auto it = caller.metadata.find("x-principal");
    if (it == caller.metadata.end()) return std::string("nobody");
    if (it->second == "mallory") return absl::UnauthenticatedError("not welcome");
    return it->second;
  }
};

v1::ErrorDetail DetailOf(const grpc::ClientContext& context) {
  v1::ErrorDetail detail;
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto it = metadata.find("keval-error-bin");
  if (it == metadata.end()) return detail;
  EXPECT_TRUE(detail.ParseFromArray(it->second.data(), static_cast<int>(it->second.size())));
  return detail;
}

class KevaldTest : public ::testing::Test {
 protected:
  void Start(ServerOptions options = {}, std::int64_t memory_bytes = 0) {
    options.listen = {*ParseListenAddress("--listen", "127.0.0.1:0")};
    options.bulk_listen = options.listen.front();
    options.health_listen = options.listen.front();
    options.data_dir = folder_.path();
    absl::StatusOr<std::unique_ptr<Kevald>> started =
        Kevald::Start(options, FakePlatform(control_, memory_bytes), &principals_);
    ASSERT_TRUE(started.ok()) << started.status();
    kevald_ = *std::move(started);
    channel_ = Connect(kevald_->addresses().control.front());
    linear_logp_ = v1::LinearLogpService::NewStub(channel_);
    tensors_ = v1::TensorService::NewStub(channel_);
  }

  static std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }

  static void SetSpec(v1::Operand* operand, v1::DataType dtype, const std::vector<std::int64_t>& shape) {
    operand->mutable_spec()->set_dtype(dtype);
    operand->mutable_spec()->clear_shape();
    for (const std::int64_t size : shape) operand->mutable_spec()->add_shape(size);
  }

  // A right request without bytes: what a stream's header holds.
  static v1::GradientRequest Header(std::int64_t tokens = kTokens) {
    v1::GradientRequest request;
    v1::LinearLogpInputs* const inputs = request.mutable_inputs();
    SetSpec(inputs->mutable_hidden(), v1::DATA_TYPE_FLOAT32, {tokens, kHidden});
    SetSpec(inputs->mutable_weight(), v1::DATA_TYPE_FLOAT32, {kVocab, kHidden});
    SetSpec(inputs->mutable_bias(), v1::DATA_TYPE_FLOAT32, {kVocab});
    SetSpec(inputs->mutable_targets(), v1::DATA_TYPE_INT32, {tokens});
    SetSpec(inputs->mutable_grad_logp(), v1::DATA_TYPE_FLOAT32, {tokens});
    return request;
  }
  // The same with its bytes, all zero.
  static v1::GradientRequest Unary() {
    v1::GradientRequest request = Header();
    v1::LinearLogpInputs* const inputs = request.mutable_inputs();
    inputs->mutable_hidden()->set_data(std::string(4 * kTokens * kHidden, '\0'));
    inputs->mutable_weight()->set_data(std::string(4 * kVocab * kHidden, '\0'));
    inputs->mutable_bias()->set_data(std::string(4 * kVocab, '\0'));
    inputs->mutable_targets()->set_data(std::string(4 * kTokens, '\0'));
    inputs->mutable_grad_logp()->set_data(std::string(4 * kTokens, '\0'));
    return request;
  }
  static std::vector<std::int64_t> PayloadSizes() {
    return {4 * kTokens, 4 * kTokens, 4 * kVocab, 4 * kVocab * kHidden, 4 * kTokens * kHidden};
  }

  struct StreamResult {
    grpc::Status status;
    v1::ErrorDetail detail;
    std::vector<v1::StreamGradientResponse> messages;
  };
  // Writes everything, then reads.
  StreamResult Stream(const std::vector<v1::StreamGradientRequest>& messages) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    auto stream = linear_logp_->StreamGradient(&context);
    for (const v1::StreamGradientRequest& message : messages) {
      if (!stream->Write(message)) break;
    }
    stream->WritesDone();
    StreamResult result;
    v1::StreamGradientResponse response;
    while (stream->Read(&response)) result.messages.push_back(response);
    result.status = stream->Finish();
    result.detail = DetailOf(context);
    return result;
  }
  static std::vector<v1::StreamGradientRequest> GoodStream() {
    std::vector<v1::StreamGradientRequest> messages(1);
    *messages[0].mutable_header() = Header();
    std::int64_t offset = 0;
    for (const std::int64_t size : PayloadSizes()) {
      messages.emplace_back();
      messages.back().set_offset(static_cast<std::uint64_t>(offset));
      messages.back().set_data(std::string(static_cast<std::size_t>(size), '\0'));
      offset += size;
    }
    return messages;
  }

  grpc::Status Gradient(const v1::GradientRequest& request, v1::GradientResponse* response = nullptr,
                        v1::ErrorDetail* detail = nullptr) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::GradientResponse ignored;
    grpc::Status status = linear_logp_->Gradient(&context, request, response == nullptr ? &ignored : response);
    if (detail != nullptr) *detail = DetailOf(context);
    return status;
  }

  grpc::Status Put(const std::vector<v1::PutRequest>& messages, v1::TensorInfo* info, const std::string& principal,
                   v1::ErrorDetail* detail = nullptr) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    context.AddMetadata("x-principal", principal);
    auto writer = tensors_->Put(&context, info);
    for (const v1::PutRequest& message : messages) {
      if (!writer->Write(message)) break;
    }
    writer->WritesDone();
    grpc::Status status = writer->Finish();
    if (detail != nullptr) *detail = DetailOf(context);
    return status;
  }
  static std::vector<v1::PutRequest> GoodPut(v1::DataType dtype, const std::vector<std::int64_t>& shape,
                                             const std::string& data) {
    std::vector<v1::PutRequest> messages(2);
    messages[0].mutable_header()->mutable_spec()->set_dtype(dtype);
    for (const std::int64_t size : shape) messages[0].mutable_header()->mutable_spec()->add_shape(size);
    messages[1].set_data(data);
    return messages;
  }
  template <typename Request>
  grpc::Status Stat(const Request& handle, const std::string& principal, v1::TensorInfo* info) {
    grpc::ClientContext context;
    context.AddMetadata("x-principal", principal);
    v1::StatTensorRequest request;
    request.set_handle(handle);
    return tensors_->Stat(&context, request, info);
  }

  const std::shared_ptr<FakeControl> control_ = std::make_shared<FakeControl>();
  MetadataPrincipalSource principals_;
  const testing::TempDir folder_;
  std::unique_ptr<Kevald> kevald_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::LinearLogpService::Stub> linear_logp_;
  std::unique_ptr<v1::TensorService::Stub> tensors_;
};

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

TEST_F(KevaldTest, UnaryBytesAreLimitedByName) {
  Start();
  v1::GradientRequest request = Unary();
  const std::int64_t tokens = (3 << 20) / 4 / kHidden;
  SetSpec(request.mutable_inputs()->mutable_hidden(), v1::DATA_TYPE_FLOAT32, {tokens, kHidden});
  request.mutable_inputs()->mutable_hidden()->set_data(std::string(3 << 20, '\0'));
  for (auto* operand : {request.mutable_inputs()->mutable_targets(), request.mutable_inputs()->mutable_grad_logp()}) {
    SetSpec(operand, operand->spec().dtype(), {tokens});
    operand->set_data(std::string(static_cast<std::size_t>(4 * tokens), '\0'));
  }
  v1::ErrorDetail detail;
  const grpc::Status status = Gradient(request, nullptr, &detail);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "inputs");
  EXPECT_THAT(detail.limit(), HasSubstr("2097152 bytes"));
}

TEST_F(KevaldTest, WantAndOptionsAreChecked) {
  Start();
  v1::ErrorDetail detail;
  v1::GradientRequest request = Unary();
  request.add_want(v1::WANT_HIDDEN);
  v1::GradientResponse response;
  ASSERT_TRUE(Gradient(request, &response).ok());
  EXPECT_TRUE(response.has_grad_hidden());
  EXPECT_FALSE(response.has_grad_weight());
  EXPECT_FALSE(response.has_grad_bias());

  request = Unary();
  request.mutable_inputs()->clear_bias();
  request.add_want(v1::WANT_BIAS);
  EXPECT_EQ(Gradient(request, nullptr, &detail).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "want");

  request = Unary();
  request.mutable_inputs()->clear_grad_logp();
  ASSERT_TRUE(Gradient(request, &response).ok());  // Forward only.
  EXPECT_FALSE(response.has_grad_hidden());

  request = Unary();
  request.mutable_options()->set_variant("no_such");
  EXPECT_EQ(Gradient(request, nullptr, &detail).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "variant");

  request = Unary();
  request.mutable_options()->set_device("cuda:3");
  EXPECT_EQ(Gradient(request, nullptr, &detail).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(detail.field(), "device");
  request.mutable_options()->set_device("tpu");
  EXPECT_EQ(Gradient(request, nullptr, &detail).error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  request = Unary();
  request.mutable_options()->set_chunk_elems(-1);
  EXPECT_EQ(Gradient(request, nullptr, &detail).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "chunk_elems");
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

TEST_F(KevaldTest, StoredTensorsAreOperandsOfTheirOwnerAlone) {
  Start();
  const std::string weight(4 * kVocab * kHidden, '\0');
  v1::TensorInfo info;
  const grpc::Status put = Put(GoodPut(v1::DATA_TYPE_FLOAT32, {kVocab, kHidden}, weight), &info, "ann");
  ASSERT_TRUE(put.ok()) << put.error_message();
  EXPECT_EQ(info.sha256(), Sha256Bytes(weight));
  EXPECT_EQ(info.size_bytes(), weight.size());

  v1::GradientRequest request = Unary();
  request.mutable_inputs()->mutable_weight()->set_handle(info.handle());
  const auto gradient_as = [&](const std::string& principal, v1::ErrorDetail* detail) {
    grpc::ClientContext context;
    context.AddMetadata("x-principal", principal);
    v1::GradientResponse response;
    grpc::Status status = linear_logp_->Gradient(&context, request, &response);
    *detail = DetailOf(context);
    return status;
  };
  v1::ErrorDetail detail;
  EXPECT_TRUE(gradient_as("ann", &detail).ok());
  EXPECT_EQ(gradient_as("bob", &detail).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(detail.field(), "weight.handle");
  EXPECT_EQ(gradient_as("mallory", &detail).error_code(), grpc::StatusCode::UNAUTHENTICATED);

  SetSpec(request.mutable_inputs()->mutable_weight(), v1::DATA_TYPE_FLOAT32, {kHidden, kVocab});
  EXPECT_EQ(gradient_as("ann", &detail).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "weight");

  v1::TensorInfo seen;
  EXPECT_TRUE(Stat(info.handle(), "ann", &seen).ok());
  EXPECT_EQ(Stat(info.handle(), "bob", &seen).error_code(), grpc::StatusCode::NOT_FOUND);

  std::string read;
  grpc::ClientContext context;
  context.AddMetadata("x-principal", "ann");
  v1::GetTensorRequest get;
  get.set_handle(info.handle());
  auto reader = tensors_->Get(&context, get);
  v1::GetTensorResponse message;
  while (reader->Read(&message)) read += message.data();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(read, weight);

  for (const auto& [principal, code] : std::vector<std::pair<std::string, grpc::StatusCode>>{
           {"bob", grpc::StatusCode::NOT_FOUND}, {"ann", grpc::StatusCode::OK}, {"ann", grpc::StatusCode::NOT_FOUND}}) {
    grpc::ClientContext delete_context;
    delete_context.AddMetadata("x-principal", principal);
    v1::DeleteTensorRequest request_delete;
    request_delete.set_handle(info.handle());
    v1::DeleteTensorResponse response;
    EXPECT_EQ(tensors_->Delete(&delete_context, request_delete, &response).error_code(), code) << principal;
  }
}

TEST_F(KevaldTest, PutIsRefusedForWhatItLiesAbout) {
  ServerOptions options;
  options.max_stored_tensor_bytes = 1 << 20;
  Start(options);
  const std::vector<v1::PutRequest> good = GoodPut(v1::DATA_TYPE_INT64, {2}, std::string(16, 'x'));
  struct Case {
    std::string name;
    std::function<void(std::vector<v1::PutRequest>*)> change;
    std::string field;
    grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT;
  };
  const auto shape = [](auto* m, const std::vector<std::int64_t>& sizes) {
    m->front().mutable_header()->mutable_spec()->clear_shape();
    for (const std::int64_t size : sizes) m->front().mutable_header()->mutable_spec()->add_shape(size);
  };
  const std::vector<Case> cases = {
      {"no header", [](auto* m) { m->erase(m->begin()); }, "header"},
      {"nothing", [](auto* m) { m->clear(); }, "header"},
      {"header twice", [](auto* m) { *m->back().mutable_header() = m->front().header(); }, "header"},
      {"no dtype", [](auto* m) { m->front().mutable_header()->mutable_spec()->clear_dtype(); }, "spec"},
      {"negative", [&](auto* m) { shape(m, {-1}); }, "spec"},
      {"product wraps",
       [&](auto* m) {
         shape(m, {std::int64_t{1} << 32, std::int64_t{1} << 32});
       },
       "spec"},
      {"bytes wrap", [&](auto* m) { shape(m, {std::int64_t{1} << 62}); }, "spec"},
      {"many dimensions", [&](auto* m) { shape(m, std::vector<std::int64_t>(100000, 1)); }, "spec"},
      {"early end", [](auto* m) { m->back().mutable_data()->resize(15); }, "data"},
      {"too much", [](auto* m) { m->back().mutable_data()->append("y"); }, "data"},
      {"lease", [](auto* m) { m->front().mutable_header()->set_lease_ms(-1); }, "lease_ms"},
      {"digest", [](auto* m) { m->back().mutable_trailer()->set_sha256(std::string(32, 'x')); }, "sha256"},
      {"store is full", [&](auto* m) { shape(m, {1 << 20}); }, "", grpc::StatusCode::RESOURCE_EXHAUSTED},
  };
  v1::TensorInfo info;
  for (const Case& test : cases) {
    std::vector<v1::PutRequest> messages = good;
    test.change(&messages);
    v1::ErrorDetail detail;
    const grpc::Status status = Put(messages, &info, "ann", &detail);
    EXPECT_EQ(status.error_code(), test.code) << test.name << ": " << status.error_message();
    EXPECT_EQ(detail.field(), test.field) << test.name << ": " << status.error_message();
  }
  EXPECT_TRUE(Put(good, &info, "ann").ok());
}

TEST_F(KevaldTest, PlanTellsTrafficAndVariants) {
  Start();
  v1::PlanRequest request;
  request.set_num_tokens(4096);
  request.set_hidden_size(2048);
  request.set_vocab_size(32768);
  v1::PlanResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(linear_logp_->Plan(&context, request, &response).ok());
  EXPECT_EQ(response.chunks(), 8);
  EXPECT_EQ(response.saving_bytes(), std::int64_t{4} << 30);
  EXPECT_EQ(response.variants_size(), 2);
  EXPECT_EQ(response.estimated_device_bytes(), 12345);
  request.set_vocab_size(0);
  grpc::ClientContext refused;
  EXPECT_EQ(linear_logp_->Plan(&refused, request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(DetailOf(refused).field(), "vocab_size");
}

TEST_F(KevaldTest, DeadlineAndCancelReachTheWork) {
  Start();
  std::atomic<int> stopped = 0;
  control_->compute = [&](const linear_logp::ContinueCheck& check) {
    while (true) {
      if (absl::Status status = check(); !status.ok()) {
        ++stopped;
        return status;
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
  };
  v1::GradientResponse response;
  grpc::ClientContext late;
  late.set_deadline(std::chrono::system_clock::now() + milliseconds(50));
  EXPECT_EQ(linear_logp_->Gradient(&late, Unary(), &response).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);

  grpc::ClientContext cancelled;
  std::thread cancel([&] {
    std::this_thread::sleep_for(milliseconds(50));
    cancelled.TryCancel();
  });
  EXPECT_EQ(linear_logp_->Gradient(&cancelled, Unary(), &response).error_code(), grpc::StatusCode::CANCELLED);
  cancel.join();
  for (int i = 0; i < 1000 && stopped < 2; ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(stopped, 2);
}

TEST_F(KevaldTest, StalledUploadIsEndedWithItsReason) {
  ServerOptions options;
  options.stall_timeout_seconds = 1;
  Start(options);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  auto stream = linear_logp_->StreamGradient(&context);
  ASSERT_TRUE(stream->Write(GoodStream().front()));
  v1::StreamGradientResponse response;
  EXPECT_FALSE(stream->Read(&response));  // No half-close: only the server's patience ends this.
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("stalled"));
}

TEST_F(KevaldTest, DrainLetsRunningCallsFinishRefusesNewOnesAndEndsWatches) {
  Start();
  absl::Notification running;
  absl::Notification release;
  control_->compute = [&](const linear_logp::ContinueCheck&) {
    running.Notify();
    release.WaitForNotification();
    return absl::OkStatus();
  };
  const auto health = grpc::health::v1::Health::NewStub(Connect(*kevald_->addresses().health));
  grpc::health::v1::HealthCheckRequest ready;
  ready.set_service("ready");
  grpc::ClientContext watch_context;
  auto watch = health->Watch(&watch_context, ready);
  HealthCheckResponse seen;
  ASSERT_TRUE(watch->Read(&seen));
  EXPECT_EQ(seen.status(), HealthCheckResponse::SERVING);

  auto call = std::async(std::launch::async, [this] { return Gradient(Unary()); });
  running.WaitForNotification();
  std::thread drain([this] { kevald_->Drain(); });
  ASSERT_TRUE(watch->Read(&seen));
  EXPECT_EQ(seen.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(watch->Read(&seen));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);

  const grpc::Status refused = Gradient(Unary());
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.error_message(), HasSubstr("draining"));
  const auto check = [&](const std::string& service) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    HealthCheckResponse response;
    EXPECT_TRUE(health->Check(&context, request, &response).ok()) << service;
    return response.status();
  };
  EXPECT_EQ(check("live"), HealthCheckResponse::SERVING);
  EXPECT_EQ(check("ready"), HealthCheckResponse::NOT_SERVING);
  v1::ServerInfo info;
  grpc::ClientContext info_context;
  EXPECT_TRUE(v1::ServerInfoService::NewStub(channel_)->GetServerInfo(&info_context, {}, &info).ok());
  EXPECT_TRUE(info.draining());

  release.Notify();
  EXPECT_TRUE(call.get().ok());
  drain.join();
}

TEST_F(KevaldTest, GraceEndsWhatDoesNotFinish) {
  ServerOptions options;
  options.drain_grace_seconds = 0;
  Start(options);
  absl::Notification running;
  control_->compute = [&](const linear_logp::ContinueCheck& check) {
    running.Notify();
    while (true) {
      if (absl::Status status = check(); !status.ok()) return status;
      std::this_thread::sleep_for(milliseconds(1));
    }
  };
  auto call = std::async(std::launch::async, [this] { return Gradient(Unary()); });
  running.WaitForNotification();
  const auto start = std::chrono::steady_clock::now();
  kevald_->Drain();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(call.get().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(KevaldTest, LostDeviceShowsInHealthAndInfoAndRefuses) {
  Start();
  control_->compute = [this](const linear_logp::ContinueCheck&) {
    control_->healthy = false;
    return absl::AbortedError("cudaErrorIllegalAddress at engine.cc");
  };
  const grpc::Status status = Gradient(Unary());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), ::testing::Not(HasSubstr("engine.cc")));
  for (int i = 0; i < 1000 && !kevald_->device_lost(); ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(kevald_->device_lost());
  EXPECT_EQ(Gradient(Unary()).error_code(), grpc::StatusCode::UNAVAILABLE);
  v1::ServerInfo info;
  grpc::ClientContext context;
  ASSERT_TRUE(v1::ServerInfoService::NewStub(channel_)->GetServerInfo(&context, {}, &info).ok());
  EXPECT_FALSE(info.devices(0).healthy());
}

TEST_F(KevaldTest, InfoHoldsLimitsDevicesAndPorts) {
  Start();
  v1::ServerInfo info;
  grpc::ClientContext context;
  const auto bulk = v1::ServerInfoService::NewStub(Connect(*kevald_->addresses().bulk));
  ASSERT_TRUE(bulk->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.limits().max_unary_bytes(), 2 << 20);
  EXPECT_EQ(*kevald_->addresses().bulk, absl::StrCat("127.0.0.1:", info.bulk_port()));
  EXPECT_EQ(info.devices(0).name(), "cpu");
  EXPECT_EQ(info.build().version(), "");  // The platform's to fill in.
  EXPECT_EQ(info.variants_size(), 2);
}

TEST_F(KevaldTest, ContractRowsStreamAndADeadWorkerIsNamed) {
  Start();
  const auto check = [this](const v1::CheckContractRequest& request, std::vector<v1::ContractRow>* rows,
                            v1::ErrorDetail* detail) {
    grpc::ClientContext context;
    auto reader = linear_logp_->CheckContract(&context, request);
    v1::ContractRow row;
    while (reader->Read(&row)) rows->push_back(row);
    grpc::Status status = reader->Finish();
    *detail = DetailOf(context);
    return status;
  };
  v1::CheckContractRequest request;
  std::vector<v1::ContractRow> rows;
  v1::ErrorDetail detail;
  ASSERT_TRUE(check(request, &rows, &detail).ok());
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[0].id(), "C1");
  EXPECT_EQ(rows[0].status(), v1::ContractRow::ROW_STATUS_PASS);
  EXPECT_EQ(rows[1].status(), v1::ContractRow::ROW_STATUS_NOT_APPLICABLE);

  request.set_seed(13);
  const grpc::Status dead = check(request, &rows, &detail);
  EXPECT_EQ(dead.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(dead.error_message(), HasSubstr("candidate"));

  request.set_candidate("no_such");
  EXPECT_EQ(check(request, &rows, &detail).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "candidate");
}

TEST_F(KevaldTest, JobsBelongToWhoeverMadeThem) {
  Start();
  const auto jobs = v1::BenchmarkService::NewStub(channel_);
  v1::CreateJobRequest create;
  v1::Shape* const shape = create.mutable_spec()->add_primaries();
  shape->set_num_tokens(8);
  shape->set_hidden_size(8);
  shape->set_vocab_size(16);
  v1::BenchmarkJob job;
  grpc::ClientContext create_context;
  create_context.AddMetadata("x-principal", "ann");
  const grpc::Status created = jobs->Create(&create_context, create, &job);
  ASSERT_TRUE(created.ok()) << created.error_message();
  for (const auto& [principal, code] : std::vector<std::pair<std::string, grpc::StatusCode>>{
           {"ann", grpc::StatusCode::OK}, {"bob", grpc::StatusCode::NOT_FOUND}}) {
    grpc::ClientContext context;
    context.AddMetadata("x-principal", principal);
    v1::GetJobRequest get;
    get.set_name(job.name());
    v1::BenchmarkJob seen;
    EXPECT_EQ(jobs->Get(&context, get, &seen).error_code(), code) << principal;
  }
  create.mutable_spec()->mutable_primaries(0)->set_vocab_size(0);
  grpc::ClientContext refused;
  EXPECT_EQ(jobs->Create(&refused, create, &job).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(DetailOf(refused).field(), "primaries[0].vocab_size");
}

TEST_F(KevaldTest, JobIsWatchedToItsEnd) {
  Start();
  const auto jobs = v1::BenchmarkService::NewStub(channel_);
  v1::CreateJobRequest create;
  v1::Shape* const shape = create.mutable_spec()->add_primaries();
  shape->set_num_tokens(8);
  shape->set_hidden_size(8);
  shape->set_vocab_size(16);
  v1::BenchmarkJob job;
  grpc::ClientContext create_context;
  ASSERT_TRUE(jobs->Create(&create_context, create, &job).ok());
  // The fake workers all crash, so the job ends FAILED: every event is replayed, then the stream ends.
  grpc::ClientContext context;
  v1::WatchJobRequest watch;
  watch.set_name(job.name());
  const auto reader = jobs->Watch(&context, watch);
  v1::JobEvent event;
  std::int64_t last = 0;
  while (reader->Read(&event)) {
    EXPECT_EQ(event.sequence(), last + 1);
    last = event.sequence();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(event.job().verdict(), "FAILED");
  EXPECT_EQ(event.job().failure_cause(), "candidate");
}

TEST_F(KevaldTest, UnknownDeviceInOptionsIsRefused) {
  ServerOptions options;
  options.listen = {*ParseListenAddress("--listen", "127.0.0.1:0")};
  options.gradient_devices = {"cuda:0"};
  options.data_dir = folder_.path();
  const absl::Status status = Kevald::Start(options, FakePlatform(control_), &principals_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--gradient_devices"));
}

}  // namespace
}  // namespace keval::server
