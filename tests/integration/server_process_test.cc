// kevald as a process: start, ready file, health, reflection, refused floods, drain, kill -9.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "keval/v1/linear_logp.grpc.pb.h"
#include "keval/v1/server_info.grpc.pb.h"
#include "tests/integration/server_calls.h"
#include "tests/support/linear_logp_cases.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace keval {
namespace {

using grpc::health::v1::HealthCheckResponse;
using test_support::CallStream;
using test_support::CallUnary;
using test_support::Connect;
using test_support::GradientResult;
using test_support::ServerProcess;
using ::testing::HasSubstr;

constexpr const char* kProgram = KEVAL_BIN_DIR "/kevald";
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

class ServerProcessTest : public ::testing::Test {
 protected:
  ServerProcess StartServer(std::vector<std::string> arguments = {},
                            std::map<std::string, std::string> environment = {}) {
    absl::StatusOr<ServerProcess> started =
        ServerProcess::Start({kProgram, folder_.path(), std::move(arguments), true, std::move(environment)});
    if (!started.ok()) ADD_FAILURE() << started.status();
    return *std::move(started);
  }
  std::string StartError(std::vector<std::string> arguments) {
    const absl::Status status = ServerProcess::Start({kProgram, folder_.path(), std::move(arguments)}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  }
  static v1::GradientRequest PlainRequest() {
    const auto plain = test_support::LoadLinearLogpCase("linear_logp/plain_bias.json");
    EXPECT_TRUE(plain.ok()) << plain.status();
    return test_support::UnaryRequest(*plain, DType::kFloat32);
  }
  static GradientResult Gradient(const std::string& address) {
    return CallUnary(v1::LinearLogpService::NewStub(Connect(address)).get(), PlainRequest());
  }

  const testing::TempDir folder_;
};

TEST_F(ServerProcessTest, BadOptionsAreOneLineAndExitTwo) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--no_such_flag"},
                                             {"--worker_program", "/no/such/program"},
                                             {"--oom_counters", "/no/such/counters"},
                                             {"--oom_counters", "/proc/uptime"},
                                             {"--listen", "nonsense"},
                                             {"--listen", "0.0.0.0:0"},
                                             {"--max_threads=x"},
                                             {"what"}}) {
    const auto finished = test_support::RunToEnd(kProgram, arguments, folder_.path(), absl::Seconds(30));
    ASSERT_TRUE(finished.ok()) << finished.status();
    EXPECT_EQ(finished->code, 2) << finished->err;
    EXPECT_EQ(std::count(finished->err.begin(), finished->err.end(), '\n'), 1) << finished->err;
    EXPECT_THAT(finished->err, ::testing::StartsWith("kevald: "));
  }
}

TEST_F(ServerProcessTest, DataDirectoryIsMadeWithItsParents) {
  const std::string data = folder_.path() + "/a/b/c";
  const ServerProcess server = StartServer({"--data_dir", data});
  EXPECT_TRUE(std::filesystem::is_directory(data));
  EXPECT_EQ(std::filesystem::status(data).permissions(), std::filesystem::perms::owner_all);
}

TEST_F(ServerProcessTest, ServesOnEveryAddressAndStopsCleanly) {
  const std::string socket = absl::StrCat("unix:", folder_.path(), "/s");
  ServerProcess server = StartServer({"--listen", "127.0.0.1:0", "--listen", socket});
  EXPECT_THAT(server.control_all(), ::testing::ElementsAre(server.control(), socket));
  for (const std::string& address : {server.control(), socket, server.bulk()}) {
    EXPECT_TRUE(Gradient(address).status.ok()) << address;
  }
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(absl::Seconds(30)), 0) << server.Log();
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/s"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/ready.json"));
}

TEST_F(ServerProcessTest, AddressInUseIsNamed) {
  const ServerProcess server = StartServer();
  const testing::TempDir other;
  const absl::Status status = ServerProcess::Start({kProgram, other.path(), {"--listen", server.control()}}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr(server.control()));
  EXPECT_TRUE(Gradient(server.control()).status.ok());
}

TEST_F(ServerProcessTest, KilledServersUnixSocketIsTakenOverWithinFiveSeconds) {
  const std::string socket = absl::StrCat("unix:", folder_.path(), "/s");
  const std::vector<std::string> arguments = {"--listen",        socket,       "--bulk_listen", "127.0.0.1:0",
                                              "--health_listen", "127.0.0.1:0"};
  ServerProcess first = StartServer(arguments);
  first.Signal(SIGKILL);
  ASSERT_EQ(first.Wait(absl::Seconds(10)), 128 + SIGKILL);
  ASSERT_TRUE(std::filesystem::exists(folder_.path() + "/s"));
  const absl::Time start = absl::Now();
  const ServerProcess second = StartServer(arguments);
  EXPECT_TRUE(Gradient(socket).status.ok());
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

TEST_F(ServerProcessTest, RegularFileAtTheSocketsPathIsLeftAlone) {
  const std::string path = folder_.path() + "/s";
  std::ofstream(path) << "precious";
  EXPECT_THAT(StartError({"--listen", absl::StrCat("unix:", path), "--bulk_listen", "none", "--health_listen", "none"}),
              HasSubstr(path));
  std::string content;
  std::ifstream(path) >> content;
  EXPECT_EQ(content, "precious");
}

HealthCheckResponse::ServingStatus Check(const std::string& address, const std::string& service) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  HealthCheckResponse response;
  const auto status = grpc::health::v1::Health::NewStub(Connect(address))->Check(&context, request, &response);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) return HealthCheckResponse::SERVICE_UNKNOWN;
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.status();
}

TEST_F(ServerProcessTest, HealthIsServedOnEveryListener) {
  const ServerProcess server = StartServer();
  for (const std::string& address : {server.control(), server.bulk(), server.health()}) {
    for (const char* service : {"", "live", "ready", "cpu"}) {
      EXPECT_EQ(Check(address, service), HealthCheckResponse::SERVING) << address << " " << service;
    }
    EXPECT_EQ(Check(address, "no.such"), HealthCheckResponse::SERVICE_UNKNOWN);
  }
  grpc::ClientContext context;
  v1::ServerInfo info;
  EXPECT_EQ(v1::ServerInfoService::NewStub(Connect(server.health()))->GetServerInfo(&context, {}, &info).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ServerProcessTest, OpenWatchesAndAnOpenUploadDoNotHoldTheExit) {
  ServerProcess server = StartServer({"--drain_grace_seconds", "1"});
  std::vector<std::pair<std::unique_ptr<grpc::ClientContext>, std::unique_ptr<grpc::ClientReader<HealthCheckResponse>>>>
      watches;
  const auto health = grpc::health::v1::Health::NewStub(Connect(server.health()));
  for (int i = 0; i < 5; ++i) {
    auto context = std::make_unique<grpc::ClientContext>();
    grpc::health::v1::HealthCheckRequest request;
    request.set_service("ready");
    auto watch = health->Watch(context.get(), request);
    HealthCheckResponse response;
    ASSERT_TRUE(watch->Read(&response));
    EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
    watches.emplace_back(std::move(context), std::move(watch));
  }
  const auto stub = v1::LinearLogpService::NewStub(Connect(server.control()));
  grpc::ClientContext upload_context;
  auto upload = stub->StreamGradient(&upload_context);
  v1::StreamGradientRequest message;
  *message.mutable_header() = PlainRequest();
  v1::Operand* const hidden = message.mutable_header()->mutable_inputs()->mutable_hidden();
  const std::int64_t row_bytes = 4 * hidden->spec().shape(1);
  hidden->clear_source();
  hidden->mutable_spec()->set_shape(0, 64 * kMiB / row_bytes);
  for (v1::Operand* per_token : {message.mutable_header()->mutable_inputs()->mutable_targets(),
                                 message.mutable_header()->mutable_inputs()->mutable_grad_logp()}) {
    per_token->clear_source();
    per_token->mutable_spec()->set_shape(0, hidden->spec().shape(0));
  }
  ASSERT_TRUE(upload->Write(message));
  message.Clear();
  message.set_data(std::string(kMiB, '\0'));
  // More than the transport holds by itself, so the server is inside the call once all of it is written.
  for (int i = 0; i < 32; ++i) {
    message.set_offset(static_cast<std::uint64_t>(i) * kMiB);
    ASSERT_TRUE(upload->Write(message));
  }

  server.Signal(SIGTERM);
  for (auto& [context, watch] : watches) {
    HealthCheckResponse response;
    ASSERT_TRUE(watch->Read(&response));
    EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
    EXPECT_FALSE(watch->Read(&response));
    EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  EXPECT_EQ(Check(server.health(), "live"), HealthCheckResponse::SERVING);
  EXPECT_EQ(server.Wait(absl::Seconds(15)), 0) << server.Log();
  EXPECT_FALSE(upload->Finish().ok());
}

TEST_F(ServerProcessTest, ReflectionListsTheServices) {
  const ServerProcess server = StartServer();
  grpc::GenericStub stub(Connect(server.control()));
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  auto call = stub.PrepareCall(&context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  ASSERT_TRUE(wait());
  const grpc::Slice list_services(std::string("\x3a\x00", 2));  // Field 7, list_services, an empty string.
  call->Write(grpc::ByteBuffer(&list_services, 1), nullptr);
  ASSERT_TRUE(wait());
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  ASSERT_TRUE(wait());
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(answer.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  for (const char* service : {"keval.v1.LinearLogpService", "keval.v1.TensorService", "keval.v1.BenchmarkService",
                              "keval.v1.ServerInfoService", "grpc.health.v1.Health"}) {
    EXPECT_THAT(text, HasSubstr(service));
  }
}

// A header with a wrong width, then 1 GiB of frames for as long as they are taken.
struct FloodResult {
  grpc::Status status;
  v1::ErrorDetail detail;
  std::chrono::steady_clock::duration time{};
  int mib_written = 0;
};
FloodResult Flood(const std::string& address) {
  constexpr int kGiBInMiB = 1024;
  FloodResult result;
  const auto stub = v1::LinearLogpService::NewStub(Connect(address));
  grpc::ClientContext context;
  v1::StreamGradientRequest message;
  v1::LinearLogpInputs* const inputs = message.mutable_header()->mutable_inputs();
  const auto set = [](v1::Operand* operand, v1::DataType dtype, const std::vector<std::int64_t>& shape) {
    operand->mutable_spec()->set_dtype(dtype);
    for (const std::int64_t size : shape) operand->mutable_spec()->add_shape(size);
  };
  set(inputs->mutable_hidden(), v1::DATA_TYPE_FLOAT32, {kMiB, 257});
  set(inputs->mutable_weight(), v1::DATA_TYPE_FLOAT32, {8, 256});
  set(inputs->mutable_targets(), v1::DATA_TYPE_INT32, {kMiB});
  set(inputs->mutable_grad_logp(), v1::DATA_TYPE_FLOAT32, {kMiB});
  const auto start = std::chrono::steady_clock::now();
  const auto stream = stub->StreamGradient(&context);
  bool open = stream->Write(message);
  message.Clear();
  message.set_data(std::string(kMiB, 'x'));
  for (int i = 0; open && i < kGiBInMiB; ++i) {
    message.set_offset(static_cast<std::uint64_t>(i) * kMiB);
    open = stream->Write(message);
    if (open) ++result.mib_written;
  }
  stream->WritesDone();
  result.status = stream->Finish();
  result.time = std::chrono::steady_clock::now() - start;
  result.detail = test_support::DetailOf(context);
  return result;
}

TEST_F(ServerProcessTest, RefusedFloodEndsAtOnceAndCostsNoMemory) {
  const ServerProcess server = StartServer();
  const auto flood = [&](const std::string& address) {
    const FloodResult result = Flood(address);
    EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << result.status.error_message();
    EXPECT_EQ(result.detail.field(), "hidden") << result.status.error_message();
    EXPECT_LT(result.time, std::chrono::seconds(1));
    EXPECT_LE(result.mib_written, 16);  // The window and what the client's own transport holds.
  };
  for (int i = 0; i < 10; ++i) flood(server.control());  // The allocator's own pools are filled then.
  flood(server.bulk());
  const std::int64_t before = server.ResidentBytes();
  for (int i = 0; i < 100; ++i) flood(i % 2 == 0 ? server.control() : server.bulk());
  EXPECT_LT(server.ResidentBytes() - before, 16 * kMiB);
  EXPECT_TRUE(Gradient(server.control()).status.ok());
}

TEST_F(ServerProcessTest, MemoryOfALargeRequestComesBack) {
  const ServerProcess server = StartServer();
  const auto stub = v1::LinearLogpService::NewStub(Connect(server.bulk()));
  // 64 MiB of hidden.
  v1::GradientRequest request;
  v1::LinearLogpInputs* const inputs = request.mutable_inputs();
  constexpr std::int64_t kTokens = 65536;
  constexpr std::int64_t kWidth = 256;
  const auto set = [](v1::Operand* operand, v1::DataType dtype, const std::vector<std::int64_t>& shape,
                      std::size_t bytes) {
    operand->mutable_spec()->set_dtype(dtype);
    for (const std::int64_t size : shape) operand->mutable_spec()->add_shape(size);
    operand->set_data(std::string(bytes, '\0'));
  };
  set(inputs->mutable_hidden(), v1::DATA_TYPE_FLOAT32, {kTokens, kWidth}, 4 * kTokens * kWidth);
  set(inputs->mutable_weight(), v1::DATA_TYPE_FLOAT32, {4, kWidth}, std::int64_t{16} * kWidth);
  set(inputs->mutable_targets(), v1::DATA_TYPE_INT32, {kTokens}, 4 * kTokens);
  set(inputs->mutable_grad_logp(), v1::DATA_TYPE_FLOAT32, {kTokens}, 4 * kTokens);
  const auto call = [&] {
    const GradientResult got = CallStream(stub.get(), request);
    ASSERT_TRUE(got.status.ok()) << got.status.error_message();
    EXPECT_EQ(got.response.grad_hidden().data().size(), 4 * kTokens * kWidth);
  };
  for (int i = 0; i < 2; ++i) call();
  const std::int64_t before = server.ResidentBytes();
  for (int i = 0; i < 5; ++i) call();
  EXPECT_LT(server.ResidentBytes() - before, 32 * kMiB);
}

TEST_F(ServerProcessTest, ContractRowsComeFromARealWorker) {
  const ServerProcess server = StartServer();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(200));
  v1::CheckContractRequest request;
  request.set_device("cpu");
  const auto stub = v1::LinearLogpService::NewStub(Connect(server.control()));
  const auto reader = stub->CheckContract(&context, request);
  std::set<std::string> ids;
  v1::ContractRow row;
  while (reader->Read(&row)) {
    ids.insert(row.id());
    EXPECT_NE(row.status(), v1::ContractRow::ROW_STATUS_FAIL) << row.ShortDebugString();
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(ids, ::testing::IsSupersetOf({"C1", "C2", "C3", "C6", "C14", "P7"}));
}

TEST_F(ServerProcessTest, GermanLocaleChangesNoNumber) {
  const ServerProcess server = StartServer({}, {{"LC_ALL", "de_DE.UTF-8"}, {"LANG", "de_DE.UTF-8"}});
  v1::GradientRequest request = PlainRequest();
  request.mutable_inputs()->mutable_hidden()->mutable_spec()->set_shape(0, 1234567);
  const GradientResult refused = CallUnary(v1::LinearLogpService::NewStub(Connect(server.control())).get(), request);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(absl::StrCat(refused.detail.value(), " ", refused.detail.limit(), " ", refused.status.error_message()),
              HasSubstr("1234567"));
  EXPECT_TRUE(Gradient(server.control()).status.ok());
}

}  // namespace
}  // namespace keval
