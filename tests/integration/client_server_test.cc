// The client library and the command line against a kevald that refuses, or that dies.
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "keval/client.h"
#include "keval/status.h"
#include "tests/integration/cli_process.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace keval {
namespace {

using test_support::CliProcess;
using test_support::CliResult;
using test_support::ServerProcess;
using Json = nlohmann::json;

class ClientServerTest : public ::testing::Test {
 protected:
  void StartServer(const std::string& listen) {
    auto server = ServerProcess::Start(
        {.program = KEVAL_BIN_DIR "/kevald", .folder = folder_.path(), .arguments = {"--listen", listen}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::make_unique<ServerProcess>(*std::move(server));
  }

  testing::TempDir folder_;
  testing::TempDir cli_folder_;
  std::unique_ptr<ServerProcess> server_;
};

// In the request's own names: it has no tensor "hidden".
TEST_F(ClientServerTest, PlanRefusesByTheRequestsFields) {
  StartServer("127.0.0.1:0");
  const auto client = Client::Connect(server_->control());
  ASSERT_TRUE(client.ok()) << client.status();
  v1::PlanRequest request;
  request.set_num_tokens(4);
  request.set_hidden_size(1);
  request.set_vocab_size(1);
  ASSERT_TRUE(client->Plan(request).ok());
  const auto refused = [&] {
    const auto plan = client->Plan(request);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    return GetFieldViolation(plan.status()).value_or(FieldViolation());
  };
  request.set_dtype(v1::DATA_TYPE_INT64);
  EXPECT_EQ(refused().field, "dtype");
  EXPECT_EQ(refused().value, "int64");
  request.set_dtype(v1::DATA_TYPE_FLOAT32);
  request.set_num_tokens(std::int64_t{1} << 60);
  EXPECT_EQ(refused().field, "num_tokens");
  request.set_num_tokens(1);
  request.set_hidden_size(std::int64_t{1} << 30);
  request.set_vocab_size(std::int64_t{1} << 30);
  EXPECT_EQ(refused().field, "vocab_size");
}

// Case 14: 1 GiB whose header declares a wrong width.
TEST_F(ClientServerTest, AWrongWidthEndsALargeUploadAtOnce) {
  StartServer("127.0.0.1:0");
  const auto client = Client::Connect(server_->control());
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE(client->GetServerInfo().ok());
  constexpr std::int64_t kTokens = std::int64_t{1} << 20;
  constexpr std::int64_t kWidth = 256;
  // calloc: the pages exist when they are sent, which for most of them is never.
  const std::unique_ptr<void, decltype(&std::free)> hidden(std::calloc(kTokens, kWidth * 4), &std::free);
  const std::vector<float> weight(8 * (kWidth - 1));
  const std::vector<std::int64_t> targets(kTokens);
  const float upstream = 1;
  GradientParams params;
  params.hidden = TensorView{DType::kFloat32, {kTokens, kWidth}, {}, hidden.get()};
  params.weight = TensorView{DType::kFloat32, {8, kWidth - 1}, {}, weight.data()};
  params.targets = TensorView{DType::kInt64, {kTokens}, {}, targets.data()};
  params.grad_logp = TensorView{DType::kFloat32, {kTokens}, {0}, &upstream};
  std::int64_t before = 0;
  for (int i = 0; i < 20; ++i) {
    const absl::Time start = absl::Now();
    const auto result = client->Gradient(params);
    EXPECT_LT(absl::Now() - start, absl::Seconds(1));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << result.status();
    ASSERT_TRUE(GetFieldViolation(result.status()).has_value());
    EXPECT_EQ(GetFieldViolation(result.status())->field, "hidden");
    if (i == 4) before = server_->ResidentBytes();  // Its buffers are warm by now.
  }
  EXPECT_LT(server_->ResidentBytes(), before + (std::int64_t{32} << 20));
  EXPECT_TRUE(client->GetServerInfo().ok());
}

TEST_F(ClientServerTest, TenThousandPutsAndDeletesReturnToTheBaseline) {
  StartServer("127.0.0.1:0");
  const auto client = Client::Connect(server_->control());
  ASSERT_TRUE(client.ok()) << client.status();
  const std::vector<float> values(1024, 1);
  std::int64_t before = 0;
  for (int i = 0; i < 10000; ++i) {
    const auto info = client->PutTensor({DType::kFloat32, {1024}, {}, values.data()});
    ASSERT_TRUE(info.ok()) << info.status();
    ASSERT_TRUE(client->DeleteTensor(info->handle()).ok());
    if (i == 1000) before = server_->ResidentBytes();
  }
  EXPECT_LT(server_->ResidentBytes(), before + (std::int64_t{8} << 20));
  const auto info = client->GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->tensor_store().used_bytes(), 0);
  EXPECT_EQ(info->tensor_store().tensors(), 0);
}

// Large tensors through a real server, in parts and whole, there and back; and by digest.
TEST_F(ClientServerTest, LargeTensorsComeBackAsTheyWent) {
  StartServer("127.0.0.1:0");
  const auto client = Client::Connect(server_->control());
  ASSERT_TRUE(client.ok()) << client.status();
  std::vector<std::int32_t> values(std::size_t{9} << 20);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i * 2654435761U);
  const auto count = static_cast<std::int64_t>(values.size());
  const TensorView view{DType::kInt32, {count}, {}, values.data()};
  const auto in_parts = client->PutTensor(view);
  ASSERT_TRUE(in_parts.ok()) << in_parts.status();
  const auto whole = client->PutTensorIfNew(view);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto known = client->PutTensorIfNew(view);
  ASSERT_TRUE(known.ok()) << known.status();
  EXPECT_NE(known->handle(), whole->handle());
  const auto info = client->GetServerInfo();
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->tensor_store().used_bytes(), std::int64_t{2} * 4 * count);  // In parts, and whole; the third shares.
  for (const std::string& handle : {in_parts->handle(), whole->handle(), known->handle()}) {
    const auto back = client->GetTensor(handle);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(std::memcmp(back->bytes().data(), values.data(), back->bytes().size()), 0);
    std::vector<std::byte> memory(values.size() * 4);
    ASSERT_TRUE(client->GetTensorInto(handle, absl::MakeSpan(memory)).ok());
    EXPECT_EQ(std::memcmp(memory.data(), values.data(), memory.size()), 0);
    memory.pop_back();
    EXPECT_EQ(client->GetTensorInto(handle, absl::MakeSpan(memory)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// A job outlives its server, and the command that follows it outlives both.
TEST_F(ClientServerTest, ARunGoesOnWhenTheServerComesBack) {
  StartServer("127.0.0.1:0");
  const std::string address = server_->control();
  const std::string spec = cli_folder_.path() + "/spec.yaml";
  std::ofstream(spec) << R"(
primaries: [{num_tokens: 128, hidden_size: 64, vocab_size: 1024}]
margins: {primary: 0.5}
procedure: {looks: [4], a_sup: [0.05], a_eq: [0.1], a_ctl: [0.01], quads: 3, timed_repetitions: 1}
)";
  CliProcess process(cli_folder_.path(), {"run", spec, "--require", "any", "--json"}, {{"KEVAL_SERVER", address}});
  const absl::Time deadline = absl::Now() + absl::Seconds(120);
  while (!absl::StrContains(process.Err(), "round ") && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(20));
  ASSERT_TRUE(absl::StrContains(process.Err(), "round ")) << process.Err();
  server_->Signal(SIGKILL);
  ASSERT_TRUE(server_->Wait(absl::Seconds(10)).has_value());
  StartServer(address);
  const CliResult run = process.Wait(absl::Seconds(200));
  EXPECT_EQ(run.code, 0) << run.err;
  const Json job = Json::parse(run.out, nullptr, false);
  ASSERT_TRUE(job.is_object()) << run.out << run.err;
  EXPECT_EQ(job["state"], "DONE");
}

}  // namespace
}  // namespace keval
