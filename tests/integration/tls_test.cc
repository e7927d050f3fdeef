// TLS and mTLS against a real kevald, with certificates of every kind, and their rotation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "keval/client.h"
#include "keval/status.h"
#include "tests/integration/cli_process.h"
#include "tests/support/certificates.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace keval {
namespace {

using test_support::Authority;
using test_support::Certificate;
using test_support::RunCli;
using test_support::ServerProcess;
using ::testing::HasSubstr;

constexpr const char* kProgram = KEVAL_BIN_DIR "/kevald";
constexpr const char* kHere = "IP:127.0.0.1,DNS:localhost";

class TlsTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(authority_.status().ok()) << authority_.status(); }

  std::vector<std::string> TlsFlags(const Certificate& server) const {
    return {"--tls_cert", server.cert, "--tls_key", server.key};
  }
  void StartServer(std::vector<std::string> arguments) {
    auto server = ServerProcess::Start({kProgram, folder_.path(), std::move(arguments)});
    if (!server.ok()) throw std::runtime_error(server.status().ToString());  // Fails the test.
    server_ = std::make_unique<ServerProcess>(*std::move(server));
  }
  void StartMutual() {
    auto flags = TlsFlags(authority_.Issue("server", "server", kHere));
    flags.insert(flags.end(), {"--tls_client_ca", authority_.ca()});
    StartServer(std::move(flags));
  }
  // One line and exit code 2, before anything is served.
  std::string StartError(const std::vector<std::string>& arguments) {
    const auto finished = test_support::RunToEnd(kProgram, arguments, folder_.path(), absl::Seconds(30));
    if (!finished.ok()) return finished.status().ToString();
    EXPECT_EQ(finished->code, 2) << finished->err;
    EXPECT_EQ(std::count(finished->err.begin(), finished->err.end(), '\n'), 1) << finished->err;
    return finished->err;
  }

  ConnectionOptions Options(const Certificate& own = {}) const {
    ConnectionOptions options;
    options.server = server_->control();
    options.tls_ca = authority_.ca();
    options.tls_cert = own.cert;
    options.tls_key = own.key;
    options.max_attempts = 1;
    return options;
  }
  static absl::Status Call(const ConnectionOptions& options) {
    const auto client = Client::Connect(options);
    if (!client.ok()) return client.status();
    return client->ListTensors({absl::Seconds(20), nullptr}).status();
  }
  void AwaitLog(const std::string& text) const {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (!absl::StrContains(server_->Log(), text) && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(50));
    EXPECT_TRUE(absl::StrContains(server_->Log(), text)) << text;
  }
  std::string Replace(const std::string& from, const std::string& to) const {
    std::filesystem::rename(from, to);
    return to;
  }

  testing::TempDir folder_;
  testing::TempDir cli_folder_;
  Authority authority_{folder_.path(), "authority"};
  std::unique_ptr<ServerProcess> server_;
};

TEST_F(TlsTest, MutualTlsNamesTheCaller) {
  StartMutual();
  struct Case {
    const char* subject;
    const char* names;
    const char* principal;
  };
  for (const auto& [subject, names, principal] :
       {Case{"ann", "", "ann"}, Case{"x", "DNS:bob.example,email:bob@example", "bob@example"},
        Case{"y", "DNS:carol.example,DNS:c.example", "carol.example"},
        Case{"z", "DNS:d.example,URI:spiffe://example/dave", "spiffe://example/dave"}}) {
    EXPECT_TRUE(Call(Options(authority_.Issue("client", subject, names))).ok());
    EXPECT_THAT(server_->Log(), HasSubstr(absl::StrCat(" principal=", principal, " ")));
  }
}

TEST_F(TlsTest, MutualTlsRefusesEveryOtherClient) {
  StartMutual();
  Authority stranger(folder_.path(), "stranger");
  const Certificate good = authority_.Issue("good", "ann", "");
  ASSERT_TRUE(Call(Options(good)).ok());
  EXPECT_EQ(Call(Options()).code(), absl::StatusCode::kUnavailable) << "no certificate";
  EXPECT_EQ(Call(Options(authority_.Issue("old", "ann", "", -1))).code(), absl::StatusCode::kUnavailable) << "expired";
  EXPECT_EQ(Call(Options(stranger.Issue("other", "ann", ""))).code(), absl::StatusCode::kUnavailable) << "wrong CA";
  EXPECT_EQ(Call(Options(authority_.Issue("uid", "uid:0", ""))).code(), absl::StatusCode::kUnauthenticated);
  ConnectionOptions plain = Options();
  plain.tls_ca.clear();
  EXPECT_EQ(Call(plain).code(), absl::StatusCode::kUnavailable) << "no TLS";
  ConnectionOptions bulk = Options();
  bulk.server = server_->bulk();
  EXPECT_EQ(Call(bulk).code(), absl::StatusCode::kUnavailable) << "bulk is under the same protection";
  EXPECT_TRUE(Call(Options(good)).ok());
}

TEST_F(TlsTest, TheClientRefusesAServerThatIsNotTheOneItMeant) {
  StartServer(TlsFlags(authority_.Issue("server", "server", "DNS:elsewhere.example")));
  EXPECT_EQ(Call(Options()).code(), absl::StatusCode::kUnavailable) << "wrong name";
  ConnectionOptions named = Options();
  named.tls_server_name = "elsewhere.example";
  EXPECT_TRUE(Call(named).ok()) << Call(named);
  Authority stranger(folder_.path(), "stranger");
  named.tls_ca = stranger.ca();
  EXPECT_EQ(Call(named).code(), absl::StatusCode::kUnavailable) << "wrong CA";
}

// 24 MiB go over both bulk connections, in parts; they come back equal.
TEST_F(TlsTest, TensorsTravelOverTlsToo) {
  StartMutual();
  ConnectionOptions options = Options(authority_.Issue("client", "ann", ""));
  std::vector<std::string> notices;
  options.notice = [&](const std::string& text) { notices.push_back(text); };
  const auto client = Client::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status();
  Tensor tensor = *Tensor::Allocate("t", DType::kFloat32, {6, 1 << 20});
  for (std::size_t i = 0; i < tensor.mutable_bytes().size(); ++i) tensor.mutable_bytes()[i] = std::byte(i * 7 % 251);
  const auto info = client->PutTensor(tensor.view());
  ASSERT_TRUE(info.ok()) << info.status();
  const auto back = client->GetTensor(info->handle());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(std::ranges::equal(tensor.mutable_bytes(), back->bytes()));
  EXPECT_THAT(notices, ::testing::IsEmpty()) << "bulk was not used";
}

// With both, a caller shows either: CI has a token, a training host a certificate.
TEST_F(TlsTest, ATokenStandsInForACertificate) {
  const std::string tokens = folder_.path() + "/tokens";
  const std::string mine = folder_.path() + "/mine";
  std::ofstream(tokens) << "ci:0123456789abcdef\n";
  std::ofstream(mine) << "0123456789abcdef\n";
  ASSERT_EQ(chmod(tokens.c_str(), 0600) + chmod(mine.c_str(), 0600), 0);
  auto flags = TlsFlags(authority_.Issue("server", "server", kHere));
  flags.insert(flags.end(), {"--tls_client_ca", authority_.ca(), "--token_file", tokens, "--listen", "0.0.0.0:0"});
  StartServer(std::move(flags));
  const std::string address = absl::StrCat("127.0.0.1", server_->control().substr(server_->control().rfind(':')));
  const auto here = [&](ConnectionOptions options) {
    options.server = address;
    return Call(options);
  };
  EXPECT_EQ(here(Options()).code(), absl::StatusCode::kUnauthenticated);
  EXPECT_TRUE(here(Options(authority_.Issue("client", "ann", ""))).ok());
  ConnectionOptions with_token = Options();
  with_token.token_file = mine;
  EXPECT_TRUE(here(with_token).ok());
  EXPECT_THAT(server_->Log(), HasSubstr(" principal=ci "));

  const std::vector<std::string> list = {"tensors", "list", "--server", address};
  EXPECT_EQ(RunCli(cli_folder_.path(), list, {{"KEVAL_TLS_CA", authority_.ca()}, {"KEVAL_TOKEN_FILE", mine}}).code, 0);
  EXPECT_EQ(RunCli(cli_folder_.path(), list, {{"KEVAL_TLS_CA", authority_.ca()}}).code, 6);
  // A failed handshake is one JSON document on stderr, too.
  Authority stranger(cli_folder_.path(), "stranger");
  auto as_json = list;
  as_json.insert(as_json.end(), {"--json", "--tls_ca", stranger.ca()});
  const auto refused = RunCli(cli_folder_.path(), as_json);
  EXPECT_EQ(refused.code, 6);
  EXPECT_THAT(refused.err, ::testing::StartsWith("{\"code\":\"UNAVAILABLE\""));
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
}

TEST_F(TlsTest, RefusesToStartWithFilesThatDoNotFit) {
  const Certificate good = authority_.Issue("good", "server", kHere);
  const Certificate other = authority_.Issue("other", "server", kHere);
  EXPECT_THAT(StartError(TlsFlags({good.cert, other.key})), HasSubstr("is not the key of"));
  EXPECT_THAT(StartError(TlsFlags(authority_.Issue("old", "server", kHere, -1))), HasSubstr("has expired"));
  EXPECT_THAT(StartError(TlsFlags({good.key, good.key})), HasSubstr("has no PEM certificate"));
  EXPECT_THAT(StartError(TlsFlags({good.cert, good.cert})), HasSubstr("--tls_key"));
  EXPECT_THAT(StartError(TlsFlags({folder_.path() + "/none", good.key})), HasSubstr("--tls_cert"));
  auto flags = TlsFlags(good);
  flags.insert(flags.end(), {"--tls_client_ca", good.key});
  EXPECT_THAT(StartError(flags), HasSubstr("--tls_client_ca"));
  ASSERT_EQ(chmod(good.key.c_str(), 0644), 0);
  EXPECT_THAT(StartError(TlsFlags(good)), HasSubstr("0644"));
  EXPECT_THAT(StartError({"--listen", "0.0.0.0:0"}), HasSubstr("--insecure"));
}

TEST_F(TlsTest, TheClientRefusesFilesItCannotUse) {
  StartMutual();
  const Certificate own = authority_.Issue("client", "ann", "");
  const auto field = [](const ConnectionOptions& options) {
    const absl::Status status = Call(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return GetFieldViolation(status).value_or(FieldViolation()).field;
  };
  ConnectionOptions options = Options(own);
  options.tls_ca = folder_.path() + "/none";
  EXPECT_EQ(field(options), "tls_ca");
  options.tls_ca.clear();
  EXPECT_EQ(field(options), "tls_ca");
  options = Options({own.cert, ""});
  EXPECT_EQ(field(options), "tls_key");
  options = Options({"", own.key});
  EXPECT_EQ(field(options), "tls_cert");
  ASSERT_EQ(chmod(own.key.c_str(), 0644), 0);
  EXPECT_EQ(field(Options(own)), "tls_key");
}

// Every handshake meets a whole pair: new connections are made all the time while certificate, key and both their
// authorities change, each file for itself and at any moment.
TEST_F(TlsTest, RotationFailsNoCall) {
  Authority next(folder_.path(), "next");
  const Certificate live = authority_.Issue("live", "server", kHere);
  // Who trusts both.
  const std::string both = folder_.path() + "/both.pem";
  std::ofstream(both) << test_support::ReadText(authority_.ca()) << test_support::ReadText(next.ca());
  const Certificate own = authority_.Issue("client", "ann", "");
  auto flags = TlsFlags(live);
  flags.insert(flags.end(), {"--tls_client_ca", authority_.ca()});
  StartServer(std::move(flags));
  ConnectionOptions options = Options(own);
  options.tls_ca = both;

  std::atomic<bool> stop = false;
  std::atomic<int> calls = 0;
  std::vector<std::string> failures;
  const auto standing = Client::Connect(options);
  ASSERT_TRUE(standing.ok()) << standing.status();
  std::thread caller([&] {
    while (!stop) {
      for (const absl::Status& status : {Call(options), standing->ListTensors().status()}) {
        if (!status.ok()) failures.push_back(status.ToString());
      }
      ++calls;
    }
  });
  ConnectionOptions only_next = Options(own);
  only_next.tls_ca = next.ca();
  EXPECT_FALSE(Call(only_next).ok());
  for (int round = 0; round < 4; ++round) {
    const bool to_next = round % 2 == 0;
    const Certificate fresh = (to_next ? next : authority_).Issue("fresh", "server", kHere);
    Replace(fresh.cert, live.cert);
    // The server looks meanwhile, and finds a pair that doesn't match; where that lasts it says so.
    if (round == 0) AwaitLog("what was read before stays in use");
    absl::SleepFor(absl::Milliseconds(700));
    Replace(fresh.key, live.key);
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (Call(only_next).ok() != to_next && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(50));
    EXPECT_EQ(Call(only_next).ok(), to_next) << "round " << round;
  }
  stop = true;
  caller.join();
  EXPECT_THAT(failures, ::testing::IsEmpty());
  EXPECT_GT(calls, 10);
}

}  // namespace
}  // namespace keval
