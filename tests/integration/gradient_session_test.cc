// Gradient sessions of a real kevald through the client library: sums of micro-batches against the cases' float64
// values, exactly once, and what is left after a kill.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "keval/client.h"
#include "keval/status.h"
#include "tests/integration/cli_process.h"
#include "tests/support/linear_logp_cases.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace keval {
namespace {

using test_support::CliResult;
using test_support::LinearLogpCase;
using test_support::ServerProcess;
using ::testing::HasSubstr;

// A case's tensors in one floating type, and micro-batches of its tokens.
template <typename Number>
class CaseTensors {
 public:
  static constexpr DType kDtype = sizeof(Number) == 8 ? DType::kFloat64 : DType::kFloat32;

  explicit CaseTensors(const LinearLogpCase& test)
      : test_(test),
        hidden_(test.hidden.begin(), test.hidden.end()),
        weight_(test.weight.begin(), test.weight.end()),
        grad_logp_(test.grad_logp.begin(), test.grad_logp.end()) {
    if (test.bias.has_value()) bias_.assign(test.bias->begin(), test.bias->end());
  }

  SessionParams Head() const {
    SessionParams params;
    params.weight = TensorView{kDtype, {test_.vocab_size, test_.hidden_size}, {}, weight_.data()};
    if (test_.bias.has_value()) params.bias = TensorView{kDtype, {test_.vocab_size}, {}, bias_.data()};
    return params;
  }
  GradientParams Batch(const std::string& session, const std::string& id, std::int64_t begin, std::int64_t end) const {
    GradientParams params;
    params.session = session;
    params.batch_id = id;
    params.hidden =
        TensorView{kDtype, {end - begin, test_.hidden_size}, {}, hidden_.data() + begin * test_.hidden_size};
    params.targets = TensorView{DType::kInt64, {end - begin}, {}, test_.targets.data() + begin};
    params.grad_logp = TensorView{kDtype, {end - begin}, {}, grad_logp_.data() + begin};
    return params;
  }

  static std::vector<double> Values(const Tensor& tensor) {
    std::vector<Number> values(tensor.bytes().size() / sizeof(Number));
    if (!values.empty()) std::memcpy(values.data(), tensor.bytes().data(), tensor.bytes().size());
    return {values.begin(), values.end()};
  }

 private:
  const LinearLogpCase& test_;
  std::vector<Number> hidden_;
  std::vector<Number> weight_;
  std::vector<Number> bias_;
  std::vector<Number> grad_logp_;
};

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want, double relative,
                const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double most = 1;
  for (const double value : want) most = std::isfinite(value) ? std::max(most, std::abs(value)) : most;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isfinite(want[i])) {
      EXPECT_NEAR(got[i], want[i], relative * most) << what << " at " << i;
    } else {
      EXPECT_EQ(got[i], want[i]) << what << " at " << i;
    }
  }
}

std::string Id(int number) {
  std::string id = absl::StrCat(number);
  id.resize(16, '.');
  return id;
}

class GradientSessionTest : public ::testing::Test {
 protected:
  void StartServer(const std::string& listen = "127.0.0.1:0") {
    auto server = ServerProcess::Start(
        {.program = KEVAL_BIN_DIR "/kevald", .folder = folder_.path(), .arguments = {"--listen", listen}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::make_unique<ServerProcess>(*std::move(server));
  }
  Client Connect() {
    auto client = Client::Connect(server_->control());
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  // The case in three micro-batches, the second sent twice; each gradient against float64.
  template <typename Number>
  void RunCase(const Client& client, const LinearLogpCase& test, double tolerance) {
    const std::string what = absl::StrCat(test.name, " ", sizeof(Number) * 8, " bits");
    const CaseTensors<Number> tensors(test);
    const auto session = client.CreateSession(tensors.Head());
    ASSERT_TRUE(session.ok()) << what << session.status();
    const std::int64_t third = test.num_tokens / 3;
    const std::vector<std::int64_t> ends = {third, 2 * third, test.num_tokens};
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      for (int attempt = 0; attempt < (i == 1 ? 2 : 1); ++attempt) {
        const auto result = client.Gradient(tensors.Batch(session->session(), Id(static_cast<int>(i)), begin, ends[i]));
        ASSERT_TRUE(result.ok()) << what << result.status();
        EXPECT_EQ(result->session_batch.sequence(), i + 1) << what;
        EXPECT_EQ(result->session_batch.repeated(), attempt == 1) << what;
        EXPECT_FALSE(result->grad_weight.has_value()) << what;
        const auto part_of = [&](const std::vector<double>& all, std::int64_t width) {
          return std::vector<double>(all.begin() + begin * width, all.begin() + ends[i] * width);
        };
        ExpectNear(CaseTensors<Number>::Values(result->logp), part_of(test.expected.logp, 1), tolerance,
                   what + " logp");
        ExpectNear(CaseTensors<Number>::Values(*result->grad_hidden),
                   part_of(test.expected.grad_hidden, test.hidden_size), tolerance, what + " grad_hidden");
      }
      begin = ends[i];
    }
    const auto sums = client.FetchSession(session->session(), /*reset=*/true);
    ASSERT_TRUE(sums.ok()) << what << sums.status();
    EXPECT_EQ(sums->session.batches(), 3) << what;
    EXPECT_EQ(sums->session.num_tokens(), test.num_tokens) << what;
    ExpectNear(CaseTensors<Number>::Values(sums->grad_weight), test.expected.grad_weight, tolerance,
               what + " grad_weight");
    ASSERT_EQ(sums->grad_bias.has_value(), test.expected.grad_bias.has_value()) << what;
    if (sums->grad_bias.has_value()) {
      ExpectNear(CaseTensors<Number>::Values(*sums->grad_bias), *test.expected.grad_bias, tolerance,
                 what + " grad_bias");
    }
    const auto zeros = client.FetchSession(session->session(), /*reset=*/false);
    ASSERT_TRUE(zeros.ok()) << what << zeros.status();
    for (const double value : CaseTensors<Number>::Values(zeros->grad_weight)) ASSERT_EQ(value, 0) << what;
    EXPECT_TRUE(client.DeleteSession(session->session()).ok()) << what;
  }

  testing::TempDir folder_;
  testing::TempDir cli_folder_;
  std::unique_ptr<ServerProcess> server_;
};

TEST_F(GradientSessionTest, SumsOfMicroBatchesAreTheWholesGradients) {
  StartServer();
  const Client client = Connect();
  const auto cases = test_support::LoadLinearLogpCases();
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_FALSE(cases->empty());
  for (const LinearLogpCase& test : *cases) RunCase<double>(client, test, 1e-9);
  // float32's own rounding, whose bounds the operator's tests measure, stays small where logits are.
  for (const char* const file :
       {"linear_logp/plain_bias.json", "linear_logp/plain_no_bias.json", "linear_logp/per_token_upstream.json"}) {
    const auto test = test_support::LoadLinearLogpCase(file);
    ASSERT_TRUE(test.ok()) << test.status();
    RunCase<float>(client, *test, 2e-5);
  }
  const auto info = client.GetServerInfo();
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->tensor_store().sessions(), 0);
}

// Large enough for streams and several chunks; in order, so that the bits are the same each time.
TEST_F(GradientSessionTest, OneClientInOrderGetsTheSameBitsAgain) {
  StartServer();
  const Client client = Connect();
  constexpr std::int64_t kTokens = 2304;
  constexpr std::int64_t kWidth = 256;
  constexpr std::int64_t kWords = 3000;
  const auto values = [](std::int64_t count, std::uint32_t seed) {
    std::vector<float> result(static_cast<std::size_t>(count));
    for (float& value : result) {
      seed = seed * 1664525U + 1013904223U;
      value = static_cast<float>(static_cast<int>(seed >> 24) - 128) / 1024.0F;
    }
    return result;
  };
  const std::vector<float> weight = values(kWords * kWidth, 1);
  std::vector<std::int64_t> targets(kTokens);
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<std::int64_t>(i * 37 % kWords);
  const std::vector<float> upstream = values(kTokens, 2);
  std::vector<std::byte> first;
  for (int run = 0; run < 2; ++run) {
    SessionParams head;
    head.weight = TensorView{DType::kFloat32, {kWords, kWidth}, {}, weight.data()};  // Larger than a message takes.
    const auto session = client.CreateSession(head);
    ASSERT_TRUE(session.ok()) << session.status();
    for (std::uint32_t batch = 0; batch < 3; ++batch) {
      const std::vector<float> hidden = values(kTokens * kWidth, 10 + batch);
      GradientParams params;
      params.session = session->session();
      params.options.set_chunk_elems(200 * kWords);
      params.hidden = TensorView{DType::kFloat32, {kTokens, kWidth}, {}, hidden.data()};
      params.targets = TensorView{DType::kInt64, {kTokens}, {}, targets.data()};
      params.grad_logp = TensorView{DType::kFloat32, {kTokens}, {}, upstream.data()};
      const auto result = client.Gradient(params);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->session_batch.sequence(), batch + 1);
    }
    const auto sums = client.FetchSession(session->session(), /*reset=*/false);
    ASSERT_TRUE(sums.ok()) << sums.status();
    const std::vector<std::byte> bytes(sums->grad_weight.bytes().begin(), sums->grad_weight.bytes().end());
    if (run == 0) first = bytes;
    EXPECT_EQ(bytes, first);
    ASSERT_TRUE(client.DeleteSession(session->session()).ok());
  }
  // Nothing stays: the weight that was stored for a session, what was fetched, the sessions.
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  auto info = client.GetServerInfo();
  while (info.ok() && info->tensor_store().used_bytes() > 0 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
    info = client.GetServerInfo();
  }
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->tensor_store().used_bytes(), 0);
}

TEST_F(GradientSessionTest, SeveralClientsAddToOneSession) {
  StartServer();
  const auto test = test_support::LoadLinearLogpCase("linear_logp/plain_bias.json");
  ASSERT_TRUE(test.ok()) << test.status();
  const CaseTensors<double> tensors(*test);
  const Client owner = Connect();
  const auto session = owner.CreateSession(tensors.Head());
  ASSERT_TRUE(session.ok()) << session.status();
  constexpr int kClients = 4;
  constexpr int kBatches = 5;
  std::vector<std::thread> clients;
  for (int number = 0; number < kClients; ++number) {
    clients.emplace_back([&, number] {
      const Client client = Connect();
      for (int i = 0; i < kBatches; ++i) {
        const auto result =
            client.Gradient(tensors.Batch(session->session(), Id(number * kBatches + i), 0, test->num_tokens));
        EXPECT_TRUE(result.ok()) << result.status();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const auto sums = owner.FetchSession(session->session(), /*reset=*/false);
  ASSERT_TRUE(sums.ok()) << sums.status();
  std::vector<double> want = test->expected.grad_weight;
  for (double& value : want) value *= kClients * kBatches;
  ExpectNear(CaseTensors<double>::Values(sums->grad_weight), want, 1e-9, "grad_weight");
}

TEST_F(GradientSessionTest, TheCommandLineListsAndDeletes) {
  StartServer();
  const auto test = test_support::LoadLinearLogpCase("linear_logp/plain_bias.json");
  ASSERT_TRUE(test.ok()) << test.status();
  const Client client = Connect();
  const auto session = client.CreateSession(CaseTensors<float>(*test).Head());
  ASSERT_TRUE(session.ok()) << session.status();
  const auto run = [&](std::vector<std::string> arguments) {
    return test_support::RunCli(cli_folder_.path(), std::move(arguments), {{"KEVAL_SERVER", server_->control()}});
  };
  const CliResult list = run({"sessions", "list", "--json"});
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr(session->session()));
  EXPECT_THAT(run({"sessions", "list"}).out, HasSubstr("0 micro-batches"));
  EXPECT_EQ(run({"sessions", "delete", session->session()}).code, 0);
  EXPECT_EQ(run({"sessions", "delete", session->session()}).code, 2);
  EXPECT_FALSE(client.GetSession(session->session()).ok());
}

TEST_F(GradientSessionTest, AfterAKillTheClientIsToldWhatIsLost) {
  StartServer();
  const std::string address = server_->control();
  const auto test = test_support::LoadLinearLogpCase("linear_logp/plain_bias.json");
  ASSERT_TRUE(test.ok()) << test.status();
  const CaseTensors<double> tensors(*test);
  const Client client = Connect();
  const auto session = client.CreateSession(tensors.Head());
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(client.Gradient(tensors.Batch(session->session(), Id(1), 0, test->num_tokens)).ok());
  server_->Signal(SIGKILL);
  ASSERT_TRUE(server_->Wait(absl::Seconds(10)).has_value());
  StartServer(address);
  // The client's own attempts reach the new process.
  const auto lost = client.Gradient(tensors.Batch(session->session(), Id(2), 0, test->num_tokens));
  EXPECT_EQ(lost.status().code(), absl::StatusCode::kNotFound) << lost.status();
  EXPECT_THAT(std::string(lost.status().message()), HasSubstr("restarted"));
  ASSERT_TRUE(GetFieldViolation(lost.status()).has_value());
  EXPECT_EQ(GetFieldViolation(lost.status())->field, "session");
}

}  // namespace
}  // namespace keval
