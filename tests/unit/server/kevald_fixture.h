// A Kevald in the test's process, with channels to it. No LibTorch, so that ThreadSanitizer can watch all of it.
#ifndef KEVAL_TESTS_UNIT_SERVER_KEVALD_FIXTURE_H_
#define KEVAL_TESTS_UNIT_SERVER_KEVALD_FIXTURE_H_

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "keval/v1/error.pb.h"
#include "keval/v1/linear_logp.grpc.pb.h"
#include "keval/v1/tensor.grpc.pb.h"
#include "server/kevald.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/server/fake_backend.h"

namespace keval::server {

inline constexpr std::int64_t kTokens = 3;
inline constexpr std::int64_t kHidden = 4;
inline constexpr std::int64_t kVocab = 5;

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

inline v1::ErrorDetail DetailOf(const grpc::ClientContext& context) {
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

}  // namespace keval::server

#endif  // KEVAL_TESTS_UNIT_SERVER_KEVALD_FIXTURE_H_
