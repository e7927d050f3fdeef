// keval health against a server that serves, drains and is gone.
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <csignal>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "keval/client.h"
#include "keval/v1/tensor.grpc.pb.h"
#include "tests/integration/cli_process.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace keval {
namespace {

using test_support::CliResult;
using test_support::RunCli;
using test_support::ServerProcess;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class CliHealthTest : public ::testing::Test {
 protected:
  CliResult Health(const std::string& address, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"health", "--server", address};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCli(cli_folder_.path(), std::move(arguments));
  }
  absl::StatusOr<ServerProcess> Start(std::vector<std::string> arguments = {}) const {
    return ServerProcess::Start(
        {.program = KEVAL_BIN_DIR "/kevald", .folder = folder_.path(), .arguments = std::move(arguments)});
  }

  testing::TempDir folder_;
  testing::TempDir cli_folder_;
};

TEST_F(CliHealthTest, ServingIsExitCodeZeroOnEveryAddress) {
  const auto server = Start();
  ASSERT_TRUE(server.ok()) << server.status();
  for (const std::string& address : {server->control(), server->bulk(), server->health()}) {
    const CliResult ready = Health(address);
    EXPECT_EQ(ready.code, 0) << address << ready.err;
    EXPECT_EQ(ready.out, "ready is SERVING\n");
  }
  const CliResult cpu = Health(server->health(), {"cpu", "--json"});
  EXPECT_EQ(cpu.code, 0) << cpu.err;
  EXPECT_EQ(Json::parse(cpu.out), Json({{"name", "cpu"}, {"status", "SERVING"}}));
  const CliResult unknown = Health(server->health(), {"cuda:9"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("cuda:9"));
}

TEST_F(CliHealthTest, DrainingIsNotReadyButLive) {
  auto server = Start({"--drain_grace_seconds", "120"});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto client = Client::Connect(server->control());
  ASSERT_TRUE(client.ok()) << client.status();
  // An upload that doesn't end holds the drain. Once its bytes are counted the server is inside the call.
  grpc::ClientContext context;
  v1::TensorInfo info;
  const auto tensors =
      v1::TensorService::NewStub(grpc::CreateChannel(server->control(), grpc::InsecureChannelCredentials()));
  const auto upload = tensors->Put(&context, &info);
  v1::PutRequest header;
  header.mutable_header()->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT32);
  header.mutable_header()->mutable_spec()->add_shape(4);
  ASSERT_TRUE(upload->Write(header));
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (client->GetServerInfo()->tensor_store().used_bytes() == 0 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }

  server->Signal(SIGTERM);
  CliResult ready;
  do {
    ready = Health(server->health(), {"ready", "--json"});
  } while (ready.code == 0 && absl::Now() < deadline);
  EXPECT_EQ(ready.code, 6) << ready.err;
  EXPECT_EQ(ready.out, "");
  const Json error = Json::parse(ready.err, nullptr, false);
  ASSERT_TRUE(error.is_object()) << ready.err;
  EXPECT_EQ(error["code"], "UNAVAILABLE");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("ready is NOT_SERVING"));
  EXPECT_EQ(Health(server->health(), {"cpu"}).code, 6);
  EXPECT_EQ(Health(server->health(), {"live"}).code, 0);

  context.TryCancel();
  EXPECT_EQ(server->Wait(absl::Seconds(60)), 0) << server->Log();
  EXPECT_FALSE(upload->Finish().ok());
  const CliResult gone = Health(server->health());
  EXPECT_EQ(gone.code, 6);
  EXPECT_THAT(gone.err, HasSubstr("UNAVAILABLE"));
}

}  // namespace
}  // namespace keval
