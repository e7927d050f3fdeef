// The CUDA build where no device is visible: it says so, serves its CPU, and refuses what asks for a GPU.
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "keval/v1/benchmark.grpc.pb.h"
#include "keval/v1/linear_logp.grpc.pb.h"
#include "keval/v1/server_info.grpc.pb.h"
#include "tests/integration/server_calls.h"
#include "tests/support/linear_logp_cases.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace keval {
namespace {

using test_support::CallUnary;
using test_support::Connect;
using test_support::GradientResult;
using test_support::LinearLogpCase;
using test_support::ServerProcess;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class NoDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<ServerProcess> started = ServerProcess::Start({.program = KEVAL_BIN_DIR "/kevald",
                                                                  .folder = folder_.path(),
                                                                  .arguments = {},
                                                                  .environment = {{"CUDA_VISIBLE_DEVICES", ""}}});
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = std::make_unique<ServerProcess>(*std::move(started));
  }

  v1::ServerInfo Info() const {
    v1::ServerInfo info;
    grpc::ClientContext context;
    const grpc::Status status =
        v1::ServerInfoService::NewStub(Connect(server_->control()))->GetServerInfo(&context, {}, &info);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return info;
  }
  GradientResult Gradient(const LinearLogpCase& values, const std::string& device) const {
    v1::GradientRequest request = test_support::UnaryRequest(values, DType::kFloat32);
    request.mutable_options()->set_device(device);
    return CallUnary(v1::LinearLogpService::NewStub(Connect(server_->control())).get(), request);
  }
  // What is said beside FAILED_PRECONDITION of a job with this target.
  v1::ErrorDetail RefusedJob(const std::string& device, const std::string& capability) const {
    v1::CreateJobRequest request;
    request.mutable_spec()->mutable_target()->set_device(device);
    request.mutable_spec()->mutable_target()->set_min_compute_capability(capability);
    v1::Shape* const shape = request.mutable_spec()->add_primaries();
    shape->set_num_tokens(16);
    shape->set_hidden_size(8);
    shape->set_vocab_size(64);
    v1::BenchmarkJob job;
    grpc::ClientContext context;
    const grpc::Status status =
        v1::BenchmarkService::NewStub(Connect(server_->control()))->Create(&context, request, &job);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << status.error_message();
    return test_support::DetailOf(context);
  }

  const testing::TempDir folder_;
  std::unique_ptr<ServerProcess> server_;
};

TEST_F(NoDeviceTest, SaysSoAndServesItsCpu) {
  const v1::ServerInfo info = Info();
  EXPECT_TRUE(info.build().cuda());
  ASSERT_EQ(info.devices_size(), 1);
  EXPECT_EQ(info.devices(0).name(), "cpu");
  EXPECT_TRUE(info.devices(0).runs_gradients() && info.devices(0).runs_benchmarks() && info.devices(0).healthy());
  // Why: without a driver that there is none, else what the runtime answers.
  const std::string& note = info.devices(0).note();
  EXPECT_THAT(note, MatchesRegex("built with CUDA, no device found: .+; CUDA_VISIBLE_DEVICES is \"\""));
  EXPECT_THAT(server_->Log(), AllOf(HasSubstr(note), HasSubstr("serving")));

  const auto values = test_support::LoadLinearLogpCase("linear_logp/plain_bias.json");
  ASSERT_TRUE(values.ok()) << values.status();
  for (const char* device : {"", "cpu"}) {
    const GradientResult result = Gradient(*values, device);
    ASSERT_TRUE(result.status.ok()) << result.status.error_message();
    const v1::Operand& logp = result.response.logp();
    const std::vector<double> got = test_support::Decode(logp.data(), logp.spec().dtype());
    ASSERT_EQ(got.size(), values->expected.logp.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], values->expected.logp[i], 1e-4) << i;
    EXPECT_TRUE(result.response.has_grad_hidden() && result.response.has_grad_weight());
  }
}

TEST_F(NoDeviceTest, RefusesWhatAsksForAGpu) {
  const auto values = test_support::LoadLinearLogpCase("linear_logp/plain_bias.json");
  ASSERT_TRUE(values.ok()) << values.status();
  const GradientResult gradient = Gradient(*values, "cuda:0");
  EXPECT_EQ(gradient.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << gradient.status.error_message();
  EXPECT_EQ(gradient.detail.field(), "device");
  EXPECT_EQ(gradient.detail.value(), "cuda:0");
  EXPECT_EQ(gradient.detail.limit(), "one of cpu");

  const v1::ErrorDetail device = RefusedJob("cuda:0", "");
  EXPECT_EQ(device.field(), "target.device");
  EXPECT_EQ(device.value(), "cuda:0");
  EXPECT_EQ(device.limit(), "one of cpu");
  const v1::ErrorDetail capability = RefusedJob("", "9.0");
  EXPECT_EQ(capability.field(), "target.min_compute_capability");
  EXPECT_EQ(capability.value(), "9.0");
  EXPECT_EQ(capability.limit(), "at most none");
}

}  // namespace
}  // namespace keval
