// keval against a real kevald: gradients, stored tensors, jobs.
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/tensor_file/safetensors.h"
#include "tests/integration/cli_process.h"
#include "tests/support/linear_logp_cases.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace keval {
namespace {

using tensor_file::NamedTensor;
using test_support::CliProcess;
using test_support::CliResult;
using test_support::ReadText;
using test_support::RunCli;
using test_support::ServerProcess;
using ::testing::HasSubstr;
using Json = nlohmann::json;

const std::string kCases = KEVAL_TEST_CASES_DIR;

Tensor FloatTensor(std::vector<std::int64_t> shape, const std::vector<double>& values) {
  auto tensor = *Tensor::Allocate("t", DType::kFloat32, std::move(shape));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(values[i]);
    std::memcpy(tensor.mutable_bytes().data() + 4 * i, &value, 4);
  }
  return tensor;
}

Tensor IntTensor(const std::vector<std::int64_t>& values) {
  auto tensor = *Tensor::Allocate("t", DType::kInt64, {static_cast<std::int64_t>(values.size())});
  if (!values.empty()) std::memcpy(tensor.mutable_bytes().data(), values.data(), 8 * values.size());
  return tensor;
}

class CliServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_folder_ = std::make_unique<testing::TempDir>();
    socket_ = server_folder_->path() + "/keval.sock";
    auto server = ServerProcess::Start({.program = KEVAL_BIN_DIR "/kevald",
                                        .folder = server_folder_->path(),
                                        .arguments = {"--listen", "127.0.0.1:0", "--listen", "unix:" + socket_}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::make_unique<ServerProcess>(*std::move(server));
  }
  static void TearDownTestSuite() {
    server_.reset();
    server_folder_.reset();
  }

  std::map<std::string, std::string> Environment(std::map<std::string, std::string> more = {}) const {
    more.emplace("KEVAL_SERVER", server_->control());
    return more;
  }
  CliResult Run(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment = {}) {
    return RunCli(folder_.path(), std::move(arguments), Environment(environment));
  }
  std::string File(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(File(name)) << text;
    return File(name);
  }

  // A case as the file that `keval gradient` takes.
  std::string CaseFile(const std::string& name) {
    const auto loaded = test_support::LoadLinearLogpCase(name);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    std::vector<NamedTensor> tensors;
    const auto& test = *loaded;
    tensors.push_back({"hidden", FloatTensor({test.num_tokens, test.hidden_size}, test.hidden)});
    tensors.push_back({"weight", FloatTensor({test.vocab_size, test.hidden_size}, test.weight)});
    if (test.bias) tensors.push_back({"bias", FloatTensor({test.vocab_size}, *test.bias)});
    tensors.push_back({"targets", IntTensor(test.targets)});
    tensors.push_back({"grad_logp", FloatTensor({test.num_tokens}, test.grad_logp)});
    EXPECT_TRUE(tensor_file::WriteSafetensors(File("in.safetensors"), tensors).ok());
    return File("in.safetensors");
  }

  std::map<std::string, Tensor> ReadOut(const std::string& name = "out.safetensors") {
    auto tensors = tensor_file::ReadSafetensors(File(name));
    EXPECT_TRUE(tensors.ok()) << tensors.status();
    std::map<std::string, Tensor> by_name;
    for (NamedTensor& named : *tensors) by_name.emplace(named.name, std::move(named.tensor));
    return by_name;
  }

  static std::unique_ptr<testing::TempDir> server_folder_;
  static std::unique_ptr<ServerProcess> server_;
  static std::string socket_;
  testing::TempDir folder_;
};

std::unique_ptr<testing::TempDir> CliServerTest::server_folder_;
std::unique_ptr<ServerProcess> CliServerTest::server_;
std::string CliServerTest::socket_;

// Case 6.
TEST_F(CliServerTest, ComputesFromNpyFilesInFortranOrder) {
  std::vector<std::string> convert = {"tensors", "convert", "--out", File("in.safetensors")};
  for (const char* name : {"hidden", "weight", "targets", "grad_logp"}) {
    convert.push_back(absl::StrCat(kCases, "/reports/npy_fortran_order.", name, ".npy"));
  }
  ASSERT_EQ(Run(convert).code, 0);
  const CliResult result =
      Run({"gradient", "--in", File("in.safetensors"), "--out", File("out.safetensors"), "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json document = Json::parse(result.out);
  const auto out = ReadOut();
  const double right[] = {-7.42105, -1.96386, -5.53820, -6.85880};
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(document["logp"][i].get<double>(), right[i], 1e-4);
    EXPECT_NEAR(out.at("logp").At(i), right[i], 1e-4);
  }
  EXPECT_EQ(out.count("grad_hidden") + out.count("grad_weight"), 2U);
  EXPECT_EQ(out.count("grad_bias"), 0U);
}

// Case 4: strict JSON, and -inf can be told from a number.
TEST_F(CliServerTest, ShowsAMaskedTargetAsMinusInfinity) {
  const std::string in = CaseFile("reports/masked_word_is_target.json");
  const CliResult result = Run({"gradient", "--in", in, "--out", File("out.safetensors"), "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json document = Json::parse(result.out, nullptr, false);
  ASSERT_TRUE(document.is_object()) << result.out;
  EXPECT_EQ(document["logp"][1], "-inf");
  EXPECT_TRUE(document["logp"][0].is_number());
  EXPECT_EQ(document["tensors"]["logp"]["non_finite"], 1);
  EXPECT_EQ(document["tensors"]["grad_hidden"]["non_finite"], 0);
  const CliResult text = Run({"gradient", "--in", in, "--out", File("out.safetensors")});
  EXPECT_THAT(text.out, HasSubstr("-inf"));
  EXPECT_EQ(text.out.find("Infinity"), std::string::npos);
}

// Case 9: 1234 tokens; every byte as under LC_ALL=C.
TEST_F(CliServerTest, BytesDoNotDependOnTheLocale) {
  std::vector<NamedTensor> tensors;
  tensors.push_back({"hidden", FloatTensor({1234, 4}, std::vector<double>(std::size_t{1234} * 4, 0.25))});
  tensors.push_back({"weight", FloatTensor({16, 4}, std::vector<double>(64, 0.5))});
  tensors.push_back({"targets", IntTensor(std::vector<std::int64_t>(1234, 3))});
  tensors.push_back({"grad_logp", FloatTensor({1234}, std::vector<double>(1234, 0.01))});
  ASSERT_TRUE(tensor_file::WriteSafetensors(File("in.safetensors"), tensors).ok());
  const std::vector<std::string> command = {"gradient", "--in", File("in.safetensors"), "--out"};
  for (const char* locale : {"C", "de_DE.UTF-8"}) {
    auto arguments = command;
    arguments.push_back(File(locale));
    ASSERT_EQ(Run(arguments, {{"LC_ALL", locale}}).code, 0);
  }
  EXPECT_EQ(ReadText(File("C")), ReadText(File("de_DE.UTF-8")));
  EXPECT_THAT(ReadText(File("C")).substr(0, 400), HasSubstr("[1234]"));
}

TEST_F(CliServerTest, ForwardOnlyWithoutGradLogp) {
  std::vector<NamedTensor> tensors;
  tensors.push_back({"hidden", FloatTensor({1, 2, 2}, {1, 2, 3, 4})});
  tensors.push_back({"weight", FloatTensor({2, 2}, {3, 4, 3, 4})});
  auto targets = *Tensor::Allocate("t", DType::kInt64, {1, 2});
  std::memset(targets.mutable_bytes().data(), 0, 16);
  tensors.push_back({"targets", std::move(targets)});
  ASSERT_TRUE(tensor_file::WriteSafetensors(File("in"), tensors).ok());
  ASSERT_EQ(Run({"gradient", "--in", File("in"), "--out", File("out.safetensors")}).code, 0);
  const auto out = ReadOut();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out.at("logp").shape(), (std::vector<std::int64_t>{1, 2}));
  EXPECT_NEAR(out.at("logp").At(0), -std::log(2.0), 1e-6);
  EXPECT_EQ(Run({"gradient", "--in", File("in"), "--out", File("out2"), "--want", "hidden"}).code, 2);
}

// Beyond max_unary_bytes the same command streams, and agrees with what is known: equal words, p = 1/2.
TEST_F(CliServerTest, StreamsWhatIsTooLargeForOneMessage) {
  const std::int64_t n = 300'000;
  std::vector<NamedTensor> tensors;
  tensors.push_back({"hidden", FloatTensor({n, 2}, std::vector<double>(static_cast<std::size_t>(n) * 2, 1))});
  tensors.push_back({"weight", FloatTensor({2, 2}, {3, 4, 3, 4})});
  tensors.push_back({"targets", IntTensor(std::vector<std::int64_t>(static_cast<std::size_t>(n), 1))});
  tensors.push_back({"grad_logp", FloatTensor({n}, std::vector<double>(static_cast<std::size_t>(n), 1))});
  ASSERT_TRUE(tensor_file::WriteSafetensors(File("in"), tensors).ok());
  const CliResult result =
      Run({"gradient", "--in", File("in"), "--out", File("out.safetensors"), "--want", "weight", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");  // The bulk address answered.
  const auto out = ReadOut();
  EXPECT_EQ(out.size(), 2U);
  EXPECT_NEAR(out.at("logp").At(n - 1), -std::log(2.0), 1e-6);
  EXPECT_NEAR(out.at("grad_weight").At(2), 0.5 * static_cast<double>(n), 1);
  EXPECT_FALSE(Json::parse(result.out).contains("logp"));  // Too many to print.
}

TEST_F(CliServerTest, RefusalsNameTheFieldAndLeaveOutUntouched) {
  const std::string out = Write("out.safetensors", "precious");
  std::vector<NamedTensor> tensors;
  tensors.push_back({"hidden", FloatTensor({1, 2}, {1, 2})});
  tensors.push_back({"weight", FloatTensor({2, 2}, {3, 4, 3, 4})});
  tensors.push_back({"targets", IntTensor({2})});  // Outside [0, 2).
  ASSERT_TRUE(tensor_file::WriteSafetensors(File("in"), tensors).ok());
  const CliResult target = Run({"gradient", "--in", File("in"), "--out", out, "--json"});
  EXPECT_EQ(target.code, 2);
  EXPECT_EQ(Json::parse(target.err)["field"], "targets");
  tensors.push_back({"extra", IntTensor({2})});
  ASSERT_TRUE(tensor_file::WriteSafetensors(File("in"), tensors).ok());
  const CliResult extra = Run({"gradient", "--in", File("in"), "--out", out, "--json"});
  EXPECT_EQ(extra.code, 2);
  EXPECT_EQ(Json::parse(extra.err)["field"], "extra");
  const std::string in = CaseFile("linear_logp/plain_no_bias.json");
  const CliResult want = Run({"gradient", "--in", in, "--out", out, "--want", "bias", "--json"});
  EXPECT_EQ(want.code, 2);
  EXPECT_EQ(Json::parse(want.err)["field"], "want");
  const CliResult variant = Run({"gradient", "--in", in, "--out", out, "--variant", "best", "--json"});
  EXPECT_EQ(variant.code, 2);
  EXPECT_EQ(Json::parse(variant.err)["field"], "variant");
  EXPECT_EQ(ReadText(out), "precious");
}

// Case 13, local: proxies are not used, over TCP and over a Unix socket.
TEST_F(CliServerTest, ProxiesAreNotUsedForALocalServer) {
  std::map<std::string, std::string> proxies;
  for (const char* name : {"http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "grpc_proxy", "GRPC_PROXY"}) {
    proxies[name] = "http://127.0.0.1:9";
  }
  EXPECT_EQ(Run({"info"}, proxies).code, 0);
  EXPECT_EQ(Run({"info", "--server", "unix:" + socket_}, proxies).code, 0);
  const std::string in = CaseFile("linear_logp/plain_bias.json");
  EXPECT_EQ(Run({"gradient", "--in", in, "--out", File("o"), "--server", "unix:" + socket_}, proxies).code, 0);
}

TEST_F(CliServerTest, KeepsTensors) {
  const std::string npy = kCases + "/reports/npy_fortran_order.weight.npy";
  const CliResult put = Run({"tensors", "put", npy, "--lease_seconds", "60", "--json"});
  ASSERT_EQ(put.code, 0) << put.err;
  const Json info = Json::parse(put.out);
  const std::string handle = info["handle"];
  EXPECT_EQ(info["spec"]["dtype"], "float32");
  EXPECT_EQ(info["size_bytes"], 256);
  EXPECT_THAT(Run({"tensors", "list"}).out, HasSubstr(handle));
  EXPECT_EQ(Run({"tensors", "touch", handle, "--lease_seconds", "120"}).code, 0);
  ASSERT_EQ(Run({"tensors", "get", handle, "--out", File("back.npy")}).code, 0);
  ASSERT_EQ(Run({"tensors", "convert", "t=" + npy, File("a")}).code, 0);
  ASSERT_EQ(Run({"tensors", "convert", "t=" + File("back.npy"), File("b")}).code, 0);
  EXPECT_EQ(ReadText(File("a")), ReadText(File("b")));
  EXPECT_EQ(Run({"tensors", "delete", handle}).code, 0);
  EXPECT_EQ(Run({"tensors", "delete", handle}).code, 2);
  EXPECT_EQ(Run({"tensors", "stat", handle}).code, 2);
}

TEST_F(CliServerTest, UnknownJobsAreExitCodeTwo) {
  for (const char* command : {"get", "cancel", "watch", "report"}) {
    const CliResult result = Run({command, "jobs/00000000000000000000000000000000", "--json"});
    EXPECT_EQ(result.code, 2) << command;
    EXPECT_EQ(Json::parse(result.err)["code"], "NOT_FOUND") << command;
  }
}

constexpr char kSpec[] = R"(
display_name: "red \e[31mfail"
primaries:
  - {num_tokens: 64, hidden_size: 32, vocab_size: 256, chunk_elems: 4096, display_name: "a < b & \"c\" ]]> d"}
margins: {primary: 1e-1}
procedure: {looks: [4], a_sup: [0.05], a_eq: [0.1], a_ctl: [0.01], quads: 3, timed_repetitions: 1, discarded_repetitions: 1}
seed: 9007199254740993
)";

// Cases 8 and 10 on the way: a whole job, its files, and the verdict again from them.
TEST_F(CliServerTest, RunsAJobToItsReport) {
  const std::string spec = Write("spec.yaml", kSpec);
  CliProcess process(
      folder_.path(),
      {"run", spec, "--require", "any", "--report_dir", File("report"), "--request_id", "once", "--json", "--events"},
      Environment());
  const CliResult run = process.Wait(absl::Seconds(240));
  ASSERT_EQ(run.code, 0) << run.err << run.out;
  EXPECT_EQ(run.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(run.err.find('\x1b'), std::string::npos);
  // All of it is JSON Lines: the events, without gaps; then the one document.
  std::istringstream lines(run.out);
  std::int64_t sequence = 0;
  Json job;
  for (std::string line; std::getline(lines, line);) {
    job = Json::parse(line, nullptr, false);
    ASSERT_TRUE(job.is_object()) << line;
    if (!job.contains("sequence")) break;
    EXPECT_EQ(job["sequence"], ++sequence);
  }
  EXPECT_EQ(lines.peek(), std::istringstream::traits_type::eof());
  EXPECT_GT(sequence, 3);
  EXPECT_EQ(job["state"], "DONE");

  for (const char* name :
       {"report.json", "report.html", "report.md", "junit.xml", "samples.csv", "diagnostics.csv", "excluded.csv"}) {
    EXPECT_TRUE(std::filesystem::exists(File("report/") + name)) << name;
  }
  const Json report = Json::parse(ReadText(File("report/report.json")));
  EXPECT_EQ(report["verdict"], job["verdict"]);
  EXPECT_EQ(report["config"]["delta"].begin().value(), 0.1);
  for (const char* arm : {"base", "candidate"}) {
    EXPECT_THAT(report["arms"][arm]["sha256"].get<std::string>(), ::testing::MatchesRegex("[0-9a-f]{64}")) << arm;
  }
  EXPECT_THAT(ReadText(File("report/report.json")), HasSubstr("9007199254740993"));
  const CliResult verdict =
      Run({"verdict", File("report/samples.csv"), "--config", File("report/report.json"), "--json"});
  EXPECT_EQ(verdict.code, 0) << verdict.err;
  EXPECT_EQ(Json::parse(verdict.out)["verdict"], job["verdict"]);

  const std::string name = job["name"];
  const CliResult again = Run({"report", name, "--json"});
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(again.out, ReadText(File("report/report.json")));
  const CliResult text = Run({"report", name});
  EXPECT_EQ(text.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(Run({"report", name, "--report_dir", File("pictures"), "--plots", "svg"}).code, 0);
  for (const char* picture : {"forest.svg", "rounds.svg", "clocks.svg"}) {
    EXPECT_TRUE(std::filesystem::exists(File("pictures/") + picture)) << picture;
  }
  // What can't be written costs exit code 2, not the verdict: the same job again, with a folder where a file must be.
  std::filesystem::create_directories(File("taken/report.html"));
  const CliResult unwritten =
      Run({"run", spec, "--require", "any", "--request_id", "once", "--report_dir", File("taken"), "--json"});
  EXPECT_EQ(unwritten.code, 2);
  EXPECT_EQ(Json::parse(unwritten.out), job);
  EXPECT_THAT(unwritten.err, HasSubstr("report.html"));
  const CliResult printed = Run({"report", name, "--report_dir", File("taken"), "--json"});
  EXPECT_EQ(printed.code, 2);
  EXPECT_EQ(printed.out, again.out);
  const CliResult png =
      Run({"report", name, "--report_dir", File("pictures"), "--plots", "png"}, {{"PATH", "/nonexistent"}});
  EXPECT_EQ(png.code, 2);
  EXPECT_THAT(png.err, HasSubstr("rsvg-convert"));
  EXPECT_EQ(Run({"watch", name, "--require", "any"}).code, 0);
  EXPECT_THAT(Run({"list", "--json"}).out, HasSubstr(name));
  EXPECT_EQ(Json::parse(Run({"get", name, "--json"}).out), job);
}

TEST_F(CliServerTest, ValidateOnlyShowsThePlanAndMakesNoJob) {
  const std::string spec = Write("spec.yaml", kSpec);
  const std::string before = Run({"list", "--json"}).out;
  const CliResult json = Run({"submit", spec, "--validate_only", "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  const Json document = Json::parse(json.out);
  EXPECT_EQ(document["spec_digest"].get<std::string>().size(), 64U);
  EXPECT_EQ(document["rounds_planned"], 4);
  const Json& series = document["plan"]["series"];
  ASSERT_EQ(series.size(), 2U);  // The primary and its control.
  EXPECT_EQ(series[0]["role"], "primary");
  EXPECT_EQ(series[0]["delta"], 0.1);
  EXPECT_EQ(series[0]["quads"], 3);
  EXPECT_EQ(series[0]["traffic"]["chunks"], 4);
  const CliResult text = Run({"submit", spec, "--validate_only"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr(document["spec_digest"].get<std::string>()));
  EXPECT_THAT(text.out, HasSubstr("margin 0.1"));
  EXPECT_EQ(text.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(Run({"list", "--json"}).out, before);
}

// Every uint64, as the field is.
TEST_F(CliServerTest, ContractsTakeTheLargestSeed) {
  const CliResult result = Run({"contract", "--seed", "18446744073709551615", "--base", "absent", "--json"});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(Json::parse(result.err)["field"], "base");  // Not the seed: the server was asked.
}

TEST_F(CliServerTest, AnInterruptedRunCancelsItsJob) {
  // Longer than anybody waits here.
  const std::string spec =
      Write("spec.json", R"({"primaries": [{"num_tokens": 64, "hidden_size": 64, "vocab_size": 4096}]})");
  CliProcess process(folder_.path(), {"run", spec, "--json"}, Environment());
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (!absl::StrContains(process.Err(), "RUNNING") && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(20));
  process.Signal(SIGINT);
  const CliResult run = process.Wait(absl::Seconds(60));
  EXPECT_EQ(run.code, 7) << run.err;
  const Json job = Json::parse(run.out, nullptr, false);
  ASSERT_TRUE(job.is_object()) << run.out;
  EXPECT_EQ(Json::parse(Run({"get", job["name"].get<std::string>(), "--json"}).out)["state"], "CANCELLED");
  EXPECT_EQ(Run({"watch", job["name"].get<std::string>()}).code, 7);
}

TEST_F(CliServerTest, AnOutputThatCannotBeWrittenIsAnError) {
  const std::string in = CaseFile("linear_logp/plain_bias.json");
  const CliResult device = Run({"gradient", "--in", in, "--out", "/dev/full"});
  EXPECT_EQ(device.code, 2);
  EXPECT_THAT(device.err, HasSubstr("regular file"));
}

}  // namespace
}  // namespace keval
