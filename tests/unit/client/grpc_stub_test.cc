// The stub against a server in the same process, over a real socket.
#include "client/grpc_stub.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/field_error.h"
#include "base/mutex.h"
#include "base/sha256.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "keval/connection.h"
#include "keval/v1/error.pb.h"

namespace keval {
namespace {

using ::testing::HasSubstr;

// What a service shares with its test is behind a lock or atomic: that a call has ended orders the two as well, but
// ThreadSanitizer can't see that through the packaged gRPC.
class InfoService : public v1::ServerInfoService::Service {
 public:
  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*, v1::ServerInfo* info) override {
    const MutexLock lock(&mutex_);
    *info = answer_;
    ++calls_;
    return grpc::Status::OK;
  }
  void SetAnswer(const v1::ServerInfo& answer) {
    const MutexLock lock(&mutex_);
    answer_ = answer;
  }
  int calls() {
    const MutexLock lock(&mutex_);
    return calls_;
  }

 private:
  Mutex mutex_;
  v1::ServerInfo answer_ ABSL_GUARDED_BY(mutex_);
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

class TensorService : public v1::TensorService::Service {
 public:
  grpc::Status Put(grpc::ServerContext*, grpc::ServerReader<v1::PutRequest>* reader, v1::TensorInfo* info) override {
    v1::PutRequest request;
    std::string payload;
    std::string digest;
    while (reader->Read(&request)) {
      if (request.has_header()) *info->mutable_spec() = request.header().spec();
      payload += request.data();
      if (request.has_trailer()) digest = request.trailer().sha256();
    }
    if (digest != Sha256Bytes(payload)) return {grpc::StatusCode::INVALID_ARGUMENT, "digest"};
    info->set_size_bytes(static_cast<std::int64_t>(payload.size()));
    const MutexLock lock(&mutex_);
    stored_ = payload;
    return grpc::Status::OK;
  }
  grpc::Status Get(grpc::ServerContext*, const v1::GetTensorRequest* request,
                   grpc::ServerWriter<v1::GetTensorResponse>* writer) override {
    v1::GetTensorResponse first;
    first.mutable_header()->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT32);
    first.mutable_header()->mutable_spec()->add_shape(4);
    first.mutable_header()->set_sha256(Sha256Bytes(std::string(16, 'x')));
    writer->Write(first);
    v1::GetTensorResponse frame;
    const std::string& fault = request->handle();
    frame.set_offset(fault == "offset" ? 1 : 0);
    frame.set_data(std::string(fault == "short" ? 12 : fault == "long" ? 20 : 16, fault == "digest" ? 'y' : 'x'));
    writer->Write(frame);
    return grpc::Status::OK;
  }
  std::string stored() {
    const MutexLock lock(&mutex_);
    return stored_;
  }

 private:
  Mutex mutex_;
  std::string stored_ ABSL_GUARDED_BY(mutex_);
};

// Refuses at the first message, or echoes a fixed answer after everything has been read.
class GradientService : public v1::LinearLogpService::Service {
 public:
  grpc::Status StreamGradient(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::StreamGradientResponse, v1::StreamGradientRequest>* stream) override {
    v1::StreamGradientRequest request;
    stream->Read(&request);
    if (refuse) {
      v1::ErrorDetail detail;
      detail.set_field("hidden");
      detail.set_value("[4, 9]");
      context->AddTrailingMetadata("keval-error-bin", detail.SerializeAsString());
      return {grpc::StatusCode::INVALID_ARGUMENT, "hidden: [4, 9] must be 8 wide"};
    }
    std::uint64_t bytes = 0;
    while (stream->Read(&request)) bytes += request.data().size();
    received = bytes;
    v1::StreamGradientResponse response;
    v1::Operand* const logp = response.mutable_header()->mutable_logp();
    logp->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT32);
    logp->mutable_spec()->add_shape(2);
    stream->Write(response);
    v1::StreamGradientResponse data;
    data.set_data("12345678");
    stream->Write(data);
    v1::StreamGradientResponse done;
    done.mutable_done()->set_sha256(Sha256Bytes("12345678"));
    done.mutable_done()->mutable_dispatch()->set_variant("portable_addmm");
    stream->Write(done);
    return grpc::Status::OK;
  }
  grpc::Status Gradient(grpc::ServerContext* context, const v1::GradientRequest*, v1::GradientResponse*) override {
    ++begun;
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    return grpc::Status::CANCELLED;
  }
  std::atomic<bool> refuse = false;
  std::atomic<int> begun = 0;  // Calls of Gradient.
  std::atomic<std::uint64_t> received = 0;
};

// Answers with the status whose name it is asked for.
class HealthService : public grpc::health::v1::Health::Service {
 public:
  grpc::Status Check(grpc::ServerContext*, const grpc::health::v1::HealthCheckRequest* request,
                     grpc::health::v1::HealthCheckResponse* response) override {
    grpc::health::v1::HealthCheckResponse::ServingStatus status{};
    if (!grpc::health::v1::HealthCheckResponse::ServingStatus_Parse(request->service(), &status)) {
      return {grpc::StatusCode::NOT_FOUND, "unknown"};
    }
    response->set_status(status);
    return grpc::Status::OK;
  }
};

class GrpcStubTest : public ::testing::Test {
 protected:
  GrpcStubTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&info_);
    builder.RegisterService(&health_);
    builder.RegisterService(&tensors_);
    builder.RegisterService(&gradients_);
    server_ = builder.BuildAndStart();
    stub_ = std::make_unique<GrpcStub>(LocalAddress(), *Credentials::Make(LocalAddress(), {}), absl::Milliseconds(200),
                                       [this](const std::string& text) { notices_.push_back(text); });
  }
  ~GrpcStubTest() override { server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1)); }

  Address LocalAddress() const { return *ParseAddress(absl::StrCat("127.0.0.1:", port_)); }

  int port_ = 0;
  InfoService info_;
  HealthService health_;
  TensorService tensors_;
  GradientService gradients_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> notices_;
  std::unique_ptr<GrpcStub> stub_;
};

// Case 14, the client's part: a refusal ends a large upload at once, and it is the server's own.
TEST_F(GrpcStubTest, AnEarlyRefusalEndsAnUploadWithTheServersStatus) {
  gradients_.refuse = true;
  const std::vector<std::byte> tensor(std::size_t{256} << 20);
  for (int i = 0; i < 20; ++i) {
    const absl::Time start = absl::Now();
    const auto done = stub_->StreamGradient({}, v1::GradientRequest(), {ConstBytes(tensor)},
                                            [](const v1::GradientResponse&) { return std::vector<MutableBytes>(); });
    EXPECT_LT(absl::Now() - start, absl::Seconds(1));
    EXPECT_EQ(done.status().code(), absl::StatusCode::kInvalidArgument) << done.status();
    ASSERT_TRUE(GetFieldViolation(done.status()).has_value());
    EXPECT_EQ(GetFieldViolation(done.status())->field, "hidden");
  }
}

TEST_F(GrpcStubTest, OnlyServingIsServing) {
  for (const char* status : {"SERVING", "NOT_SERVING", "UNKNOWN", "SERVICE_UNKNOWN"}) {
    const auto serving = stub_->IsServing({}, status);
    ASSERT_TRUE(serving.ok()) << serving.status();
    EXPECT_EQ(*serving, std::string(status) == "SERVING") << status;
  }
  EXPECT_EQ(stub_->IsServing({}, "cuda:9").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(GrpcStubTest, StreamsAGradient) {
  const std::vector<std::byte> tensor((std::size_t{3} << 20) + 5);
  std::string answer(8, '\0');
  const auto done = stub_->StreamGradient(
      {}, v1::GradientRequest(), {ConstBytes(tensor), ConstBytes(tensor).subspan(0, 7)},
      [&](const v1::GradientResponse& header) {
        EXPECT_EQ(header.logp().spec().shape(0), 2);
        return std::vector<MutableBytes>{MutableBytes(reinterpret_cast<std::byte*>(answer.data()), answer.size())};
      });
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(answer, "12345678");
  EXPECT_EQ(gradients_.received, tensor.size() + 7);
  EXPECT_EQ(done->dispatch().variant(), "portable_addmm");
}

TEST_F(GrpcStubTest, AnAnswerThatTheClientCannotHoldEndsTheCallWithItsReason) {
  const auto done = stub_->StreamGradient({}, v1::GradientRequest(), {},
                                          [](const v1::GradientResponse&) -> absl::StatusOr<std::vector<MutableBytes>> {
                                            return absl::ResourceExhaustedError("no memory");
                                          });
  EXPECT_EQ(done.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(GrpcStubTest, PutsWithADigest) {
  const std::vector<std::byte> tensor((std::size_t{2} << 20) + 1, std::byte{'a'});
  const auto info = stub_->Put({}, v1::PutHeader(), tensor);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->size_bytes(), static_cast<std::int64_t>(tensor.size()));
  EXPECT_EQ(tensors_.stored(), std::string(tensor.size(), 'a'));
}

TEST_F(GrpcStubTest, AnswersThatBreakTheProtocolAreDataLoss) {
  for (const char* fault : {"offset", "short", "long", "digest", ""}) {
    std::string memory(16, '\0');
    v1::GetTensorRequest request;
    request.set_handle(fault);
    const auto status = stub_->Get({}, request, [&](const v1::TensorInfo&) {
      return MutableBytes(reinterpret_cast<std::byte*>(memory.data()), memory.size());
    });
    EXPECT_EQ(status.code(), *fault == '\0' ? absl::StatusCode::kOk : absl::StatusCode::kDataLoss) << fault << status;
  }
}

TEST_F(GrpcStubTest, StaysOnControlAndSaysSoOnceWhereBulkDoesNotAnswer) {
  v1::ServerInfo info;
  info.set_bulk_port(1);
  info_.SetAnswer(info);
  const std::vector<std::byte> tensor(8);
  EXPECT_TRUE(stub_->Put({}, v1::PutHeader(), tensor).ok());
  EXPECT_TRUE(stub_->Put({}, v1::PutHeader(), tensor).ok());
  ASSERT_EQ(notices_.size(), 1U);
  EXPECT_THAT(notices_[0], HasSubstr("127.0.0.1:1"));
  EXPECT_EQ(info_.calls(), 1);
}

TEST_F(GrpcStubTest, UsesTheAdvertisedBulkAddress) {
  int bulk_port = 0;
  TensorService bulk;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &bulk_port);
  builder.RegisterService(&bulk);
  const auto server = builder.BuildAndStart();
  v1::ServerInfo info;
  info.set_advertise_bulk(absl::StrCat("127.0.0.1:", bulk_port));
  info_.SetAnswer(info);
  const std::vector<std::byte> tensor(8, std::byte{'b'});
  EXPECT_TRUE(stub_->Put({}, v1::PutHeader(), tensor).ok());
  EXPECT_EQ(bulk.stored(), "bbbbbbbb");
  EXPECT_TRUE(notices_.empty());
  stub_.reset();
  server->Shutdown();
}

TEST_F(GrpcStubTest, DeadlinesAndCancellationEndACall) {
  EXPECT_EQ(stub_->Gradient({absl::Now() + absl::Milliseconds(50), nullptr}, {}).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  CancelSource cancel;
  std::thread canceller([&, before = gradients_.begun.load()] {
    while (gradients_.begun == before) absl::SleepFor(absl::Milliseconds(1));
    cancel.Cancel();
  });
  EXPECT_EQ(stub_->Gradient({absl::InfiniteFuture(), &cancel}, {}).status().code(), absl::StatusCode::kCancelled);
  canceller.join();
  EXPECT_EQ(stub_->Gradient({absl::InfiniteFuture(), &cancel}, {}).status().code(), absl::StatusCode::kCancelled);
}

// Case 13.
TEST_F(GrpcStubTest, ProxiesAreNotUsedForLocalServersAndNamedForOthers) {
  for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "GRPC_PROXY"}) {
    setenv(name, "http://127.0.0.1:9", 1);
    GrpcStub local(LocalAddress(), *Credentials::Make(LocalAddress(), {}), absl::Milliseconds(200), {});
    EXPECT_TRUE(local.GetServerInfo({absl::Now() + absl::Seconds(5), nullptr}).ok()) << name;
    unsetenv(name);
  }
  setenv("https_proxy", "http://127.0.0.1:9", 1);
  const Address elsewhere = *ParseAddress("keval.invalid:7400");
  GrpcStub remote(elsewhere, *Credentials::Make(elsewhere, {}), absl::Milliseconds(200), {});
  const auto status = remote.GetServerInfo({absl::Now() + absl::Seconds(5), nullptr}).status();
  unsetenv("https_proxy");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a proxy was used: the environment variable https_proxy named it"));
}

}  // namespace
}  // namespace keval
