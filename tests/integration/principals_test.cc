// Who calls a real kevald, by token and by uid, and that what belongs to one is not there for another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "keval/client.h"
#include "keval/status.h"
#include "tests/integration/cli_process.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace keval {
namespace {

using test_support::RunCli;
using test_support::ServerProcess;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kProgram = KEVAL_BIN_DIR "/kevald";
constexpr const char* kAnn = "ann-0123456789abcdef";
constexpr const char* kBob = "bob-0123456789abcdef";

class PrincipalsTest : public ::testing::Test {
 protected:
  PrincipalsTest() { WriteTokens(absl::StrCat("ann:", kAnn, "\nbob:", kBob, "\n")); }

  std::string WriteFile(const std::string& name, const std::string& text, mode_t mode = 0600) {
    std::string path = absl::StrCat(folder_.path(), "/", name);
    const std::string fresh = absl::StrCat(path, ".new");
    std::ofstream(fresh) << text;
    EXPECT_EQ(chmod(fresh.c_str(), mode), 0);
    EXPECT_EQ(rename(fresh.c_str(), path.c_str()), 0);
    return path;
  }
  void WriteTokens(const std::string& text) { WriteFile("tokens", text); }

  void StartServer(std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.end(), {"--token_file", folder_.path() + "/tokens"});
    auto server = ServerProcess::Start({kProgram, folder_.path(), std::move(arguments)});
    if (!server.ok()) throw std::runtime_error(server.status().ToString());  // Fails the test.
    server_ = std::make_unique<ServerProcess>(*std::move(server));
  }

  // `token` empty: none is shown.
  Client ConnectTo(const std::string& server, const std::string& token) {
    ConnectionOptions options;
    options.server = server;
    if (!token.empty()) options.token_file = WriteFile(absl::StrCat("token", ++tokens_), absl::StrCat(token, "\n"));
    auto client = Client::Connect(std::move(options));
    if (!client.ok()) ADD_FAILURE() << client.status();
    return *std::move(client);
  }
  Client As(const std::string& token) { return ConnectTo(server_->control(), token); }

  testing::TempDir folder_;
  testing::TempDir cli_folder_;
  std::unique_ptr<ServerProcess> server_;
  int tokens_ = 0;
};

absl::StatusCode CodeOf(const Client& client) { return client.ListTensors().status().code(); }

Tensor Floats(std::vector<std::int64_t> shape) { return *Tensor::Allocate("t", DType::kFloat32, std::move(shape)); }

// Waits until `client`'s calls end with `code`: the server looks at its files twice a second.
void AwaitCode(const Client& client, absl::StatusCode code) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (CodeOf(client) != code && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(CodeOf(client), code);
}

// What only `owner` may use: `handle` and `bytes` are a stored tensor [4, 2], `job` the name of a job.
void ExpectNothingThere(const Client& other, const std::string& handle, const Tensor& bytes, const std::string& job) {
  constexpr auto kNotFound = absl::StatusCode::kNotFound;
  EXPECT_EQ(other.StatTensor(handle).status().code(), kNotFound);
  EXPECT_EQ(other.TouchTensor(handle, absl::Seconds(1)).status().code(), kNotFound);
  EXPECT_EQ(other.GetTensor(handle).status().code(), kNotFound);
  EXPECT_EQ(other.DeleteTensor(handle).code(), kNotFound);
  EXPECT_EQ(other.ListTensors()->size(), 0U);
  GradientParams params;
  params.hidden = Floats({3, 2});
  params.weight = Operand::Handle(handle);
  auto targets = *Tensor::Allocate("t", DType::kInt64, {3});
  params.targets = targets;
  const Tensor one = Floats({400000});
  params.grad_logp = TensorView{DType::kFloat32, {3}, {}, one.view().data};
  const auto gradient = other.Gradient(params);
  EXPECT_EQ(gradient.status().code(), kNotFound) << gradient.status();
  // Large enough to be streamed.
  const Tensor large = Floats({400000, 2});
  params.hidden = large;
  targets = *Tensor::Allocate("t", DType::kInt64, {400000});
  params.targets = targets;
  params.grad_logp = one;
  const auto streamed = other.Gradient(params);
  EXPECT_EQ(streamed.status().code(), kNotFound) << streamed.status();
  // Not even that the bytes are there: the tensor that this makes is the other's own, with a handle of its own.
  const auto stored = other.PutTensorIfNew(bytes.view());
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_NE(stored->handle(), handle);
  EXPECT_TRUE(other.DeleteTensor(stored->handle()).ok());

  EXPECT_EQ(other.GetJob(job).status().code(), kNotFound);
  EXPECT_EQ(other.CancelJob(job).status().code(), kNotFound);
  EXPECT_EQ(other.WatchJob({.name = job}, [](const v1::JobEvent&) {}).code(), kNotFound);
  EXPECT_EQ(other.GetReport(job).status().code(), kNotFound);
  EXPECT_EQ(other.ListJobs()->size(), 0U);
}

TEST_F(PrincipalsTest, WhatIsOnesIsNotThereForAnother) {
  const std::string address = absl::StrCat("unix:", folder_.path(), "/s");
  StartServer({"--listen", "127.0.0.1:0", "--listen", address, "--unix_principals"});
  const Client ann = As(kAnn);
  const Client bob = As(kBob);
  const Client user = ConnectTo(address, "");

  const Tensor weight = Floats({4, 2});
  const auto info = ann.PutTensor(weight.view());
  ASSERT_TRUE(info.ok()) << info.status();
  v1::CreateJobRequest request;
  v1::BenchmarkSpec* const spec = request.mutable_spec();
  spec->mutable_target()->set_device("cpu");
  spec->mutable_target()->set_force_variant(true);
  v1::Shape* const shape = spec->add_primaries();
  shape->set_num_tokens(16);
  shape->set_hidden_size(8);
  shape->set_vocab_size(64);
  spec->mutable_procedure()->add_looks(6);
  request.set_request_id("the same for everybody");
  const auto job = ann.CreateJob(request);
  ASSERT_TRUE(job.ok()) << job.status();

  for (const Client* const other : {&bob, &user}) ExpectNothingThere(*other, info->handle(), weight, job->name());

  // An id of one's own doesn't find another's job.
  const auto bobs = bob.CreateJob(request);
  ASSERT_TRUE(bobs.ok()) << bobs.status();
  EXPECT_NE(bobs->name(), job->name());
  EXPECT_TRUE(bob.CancelJob(bobs->name()).ok());

  EXPECT_TRUE(ann.StatTensor(info->handle()).ok());
  EXPECT_TRUE(ann.GetJob(job->name()).ok());
  EXPECT_TRUE(ann.CancelJob(job->name()).ok());
  EXPECT_THAT(server_->Log(), HasSubstr(absl::StrCat(" principal=uid:", geteuid(), " ")));
  EXPECT_THAT(server_->Log(), HasSubstr(" principal=ann "));
}

TEST_F(PrincipalsTest, EveryServiceRefusesACallerWhoShowsNothing) {
  StartServer();
  for (const std::string& address : {server_->control(), server_->bulk()}) {
    const Client nobody = ConnectTo(address, "");
    constexpr auto kNobody = absl::StatusCode::kUnauthenticated;
    EXPECT_EQ(nobody.GetServerInfo().status().code(), kNobody);
    EXPECT_EQ(nobody.Plan({}).status().code(), kNobody);
    EXPECT_EQ(nobody.CheckContract({}, [](const v1::ContractRow&) {}).code(), kNobody);
    EXPECT_EQ(nobody.PutTensor(Floats({2}).view()).status().code(), kNobody);
    EXPECT_EQ(nobody.PutTensorIfNew(Floats({2}).view()).status().code(), kNobody);
    EXPECT_EQ(nobody.GetTensor("tensors/x").status().code(), kNobody);
    EXPECT_EQ(nobody.StatTensor("tensors/x").status().code(), kNobody);
    EXPECT_EQ(nobody.ListTensors().status().code(), kNobody);
    EXPECT_EQ(nobody.TouchTensor("tensors/x", absl::Seconds(1)).status().code(), kNobody);
    EXPECT_EQ(nobody.DeleteTensor("tensors/x").code(), kNobody);
    EXPECT_EQ(nobody.CreateJob({}).status().code(), kNobody);
    EXPECT_EQ(nobody.GetJob("jobs/x").status().code(), kNobody);
    EXPECT_EQ(nobody.ListJobs().status().code(), kNobody);
    EXPECT_EQ(nobody.WatchJob({.name = "jobs/x"}, [](const v1::JobEvent&) {}).code(), kNobody);
    EXPECT_EQ(nobody.CancelJob("jobs/x").status().code(), kNobody);
    EXPECT_EQ(nobody.GetReport("jobs/x").status().code(), kNobody);
    EXPECT_EQ(CodeOf(ConnectTo(address, "wrong-0123456789abcdef")), kNobody);
    EXPECT_EQ(CodeOf(ConnectTo(address, kAnn)), absl::StatusCode::kOk);
  }
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(absl::Seconds(30)), 0);
  for (const char* secret : {kAnn, kBob, "wrong-0123456789abcdef"}) EXPECT_THAT(server_->Log(), Not(HasSubstr(secret)));
}

// Server and client read their files again: a token is changed without a restart and without a call that fails.
TEST_F(PrincipalsTest, ATokenIsRotatedWithoutAFailedCall) {
  StartServer();
  const std::string token = WriteFile("mine", absl::StrCat(kAnn, "\n"));
  ConnectionOptions options;
  options.server = server_->control();
  options.token_file = token;
  const auto ann = Client::Connect(options);
  ASSERT_TRUE(ann.ok()) << ann.status();
  ASSERT_TRUE(ann->PutTensor(Floats({2}).view()).ok());
  const Client old = As(kAnn);
  constexpr const char* kNew = "new-0123456789abcdef";
  const Client fresh = As(kNew);
  // First both are taken, then the client changes, then the old one goes.
  WriteTokens(absl::StrCat("ann:", kAnn, "\nann:", kNew, "\n"));
  AwaitCode(fresh, absl::StatusCode::kOk);
  EXPECT_EQ(CodeOf(*ann), absl::StatusCode::kOk);
  WriteFile("mine", absl::StrCat(kNew, "\n"));
  EXPECT_EQ(CodeOf(*ann), absl::StatusCode::kOk);
  WriteTokens(absl::StrCat("ann:", kNew, "\n"));
  AwaitCode(old, absl::StatusCode::kUnauthenticated);
  const auto tensors = ann->ListTensors();
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->size(), 1U) << "the same principal still";
}

// Tokens for a uid are a server's own; the client asks the new one by itself.
TEST_F(PrincipalsTest, AUserIsKnownAgainAfterTheServersRestart) {
  const std::string address = absl::StrCat("unix:", folder_.path(), "/s");
  const std::vector<std::string> arguments = {"--listen", address, "--unix_principals"};
  StartServer(arguments);
  const Client user = ConnectTo(address, "");
  EXPECT_EQ(CodeOf(user), absl::StatusCode::kOk);
  server_->Signal(SIGKILL);
  ASSERT_EQ(server_->Wait(absl::Seconds(30)), 128 + SIGKILL);
  StartServer(arguments);  // Over the socket files that the killed one left.
  EXPECT_EQ(CodeOf(user), absl::StatusCode::kOk);
  const auto result = RunCli(cli_folder_.path(), {"tensors", "list", "--server", address});
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST_F(PrincipalsTest, TheCommandLineTakesATokenFromAFileAlone) {
  StartServer();
  const std::string mine = WriteFile("mine", absl::StrCat(kAnn, "\n"));
  const std::vector<std::string> list = {"tensors", "list", "--server", server_->control(), "--json"};
  auto result = RunCli(cli_folder_.path(), list);
  EXPECT_EQ(result.code, 6) << result.err;
  EXPECT_THAT(result.err, HasSubstr("UNAUTHENTICATED"));
  EXPECT_EQ(RunCli(cli_folder_.path(), list, {{"KEVAL_TOKEN_FILE", mine}}).code, 0);
  auto with_flag = list;
  with_flag.insert(with_flag.end(), {"--token_file", mine});
  EXPECT_EQ(RunCli(cli_folder_.path(), with_flag).code, 0);

  with_flag.back() = WriteFile("open", absl::StrCat(kAnn, "\n"), 0644);
  result = RunCli(cli_folder_.path(), with_flag);
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("\"field\":\"token_file\""));
  EXPECT_THAT(result.err, HasSubstr("0644"));
  EXPECT_THAT(result.err, Not(HasSubstr(kAnn)));
  // Not to another machine in clear text; nothing is sent.
  result = RunCli(cli_folder_.path(), {"tensors", "list", "--server", "192.0.2.1:7400", "--token_file", mine});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("tls_ca"));
}

}  // namespace
}  // namespace keval
