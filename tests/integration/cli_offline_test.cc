// The commands of keval that need no server, and what every command does where none is.
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/integration/cli_process.h"
#include "tests/support/temp_dir.h"

namespace keval {
namespace {

using test_support::CliResult;
using test_support::ReadText;
using test_support::RunCli;
using ::testing::HasSubstr;
using Json = nlohmann::json;

const std::string kCases = KEVAL_TEST_CASES_DIR;

class CliOfflineTest : public ::testing::Test {
 protected:
  CliResult Run(std::vector<std::string> arguments, std::map<std::string, std::string> environment = {}) {
    return RunCli(folder_.path(), std::move(arguments), environment);
  }
  std::string File(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(File(name)) << text;
    return File(name);
  }

  testing::TempDir folder_;
};

TEST_F(CliOfflineTest, PrintsItsVersionAndHelp) {
  EXPECT_EQ(Run({"--version"}).out.substr(0, 6), "keval ");
  EXPECT_EQ(Run({"--help"}).code, 0);
  EXPECT_THAT(Run({"run", "--help"}).out, HasSubstr("--report_dir"));
}

TEST_F(CliOfflineTest, UsageErrorsAreExitCodeTwo) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"frobnicate"},
                                             {"run"},
                                             {"plan", "--num_tokens", "4"},
                                             {"plan", "--num_tokens", "4x", "--hidden_size", "1", "--vocab_size", "1"},
                                             {"run", "a.yaml", "--require", "wonderful"},
                                             {"gradient", "--in", "a", "--out", "b", "--autocast", "int8"},
                                             {"verdict", "a.csv", "--margin", "guard"}}) {
    auto with_json = arguments;
    with_json.emplace_back("--json");
    const CliResult result = Run(with_json);
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.out, "");
    const Json error = Json::parse(result.err, nullptr, false);
    ASSERT_TRUE(error.is_object()) << result.err;
    EXPECT_EQ(error["code"], "INVALID_ARGUMENT");
    EXPECT_TRUE(error.contains("field") && error.contains("message"));
  }
}

TEST_F(CliOfflineTest, PlanIsTheStaticModel) {
  const CliResult result =
      Run({"plan", "--num_tokens", "4096", "--hidden_size", "2048", "--vocab_size", "32768", "--json"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out), Json({{"chunk_tokens", 512},
                                           {"chunks", 8},
                                           {"base_bytes", 8858370048},
                                           {"candidate_bytes", 4563402752},
                                           {"saving_bytes", 4294967296},
                                           {"add_ops_saved", 8}}));
  // Leading zeros stay decimal, and zero of a size is refused by the model, by name.
  EXPECT_EQ(
      Json::parse(Run({"plan", "--num_tokens", "0010", "--hidden_size", "1", "--vocab_size", "16777216", "--json"})
                      .out)["chunks"],
      10);
  const CliResult zero = Run({"plan", "--num_tokens", "1", "--hidden_size", "0", "--vocab_size", "1", "--json"});
  EXPECT_EQ(zero.code, 2);
  EXPECT_EQ(Json::parse(zero.err)["field"], "hidden_size");
}

// Case 11, and case 9 for it: the same bytes under another locale.
TEST_F(CliOfflineTest, RecomputesAVerdict) {
  const std::vector<std::string> command = {"verdict", kCases + "/reports/samples_slow_first_repetition.csv",
                                            "--config", kCases + "/reports/samples_slow_first_repetition.expected.json",
                                            "--json"};
  const CliResult result = Run(command, {{"LC_ALL", "C"}});
  EXPECT_EQ(result.code, 0) << result.err;
  const Json verdict = Json::parse(result.out);
  EXPECT_EQ(verdict["verdict"], "IMPROVED");
  EXPECT_EQ(verdict["stop_look"], 6);
  EXPECT_NEAR(verdict["looks"][0]["series"]["s1"]["L"].get<double>(), 0.0190719, 1e-6);
  EXPECT_NEAR(verdict["looks"][0]["series"]["s1"]["meanratio_log"].get<double>(), 0.00366206, 1e-7);
  EXPECT_EQ(Run(command, {{"LC_ALL", "de_DE.UTF-8"}}).out, result.out);
}

TEST_F(CliOfflineTest, VerdictsGateByExitCodeAndTakeFlags) {
  const std::string gain = kCases + "/verdict/gain_3pct.csv";
  const std::vector<std::string> flags = {"--looks", "6,10",      "--a_sup", ".002,.002",
                                          "--a_eq",  ".010,.010", "--a_ctl", ".001,.001"};
  const auto with = [&](std::vector<std::string> rest) {
    std::vector<std::string> command = {"verdict", gain};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), rest.begin(), rest.end());
    return Run(command).code;
  };
  EXPECT_EQ(with({"--require", "improved"}), 0);
  EXPECT_EQ(with({"--require", "equivalent"}), 3);
  EXPECT_EQ(with({"--margin", "guard=0"}), 2);
  EXPECT_EQ(Run({"verdict", kCases + "/verdict/guard_regression.csv", "--looks", "6", "--a_sup", ".002", "--a_eq",
                 ".01", "--a_ctl", ".001", "--require", "improved"})
                .code,
            1);
  const CliResult bad = Run({"verdict", Write("bad.csv", "series,role\n"), "--json"});
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(Json::parse(bad.err)["message"].get<std::string>(), HasSubstr("line 1"));
  EXPECT_EQ(Run({"verdict", File("absent.csv")}).code, 2);
}

// Case 5.
TEST_F(CliOfflineTest, RefusesAFileWhoseShapeWraps) {
  const CliResult result = Run({"gradient", "--in", kCases + "/reports/safetensors_shape_product_wraps.safetensors",
                                "--out", File("out"), "--json"});
  EXPECT_EQ(result.code, 2);
  const Json error = Json::parse(result.err);
  EXPECT_EQ(error["field"], "weight");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("[4294967296, 4294967296]"));
}

// Case 7.
TEST_F(CliOfflineTest, ConvertsBFloat16OnlyWhenItIsSaid) {
  const std::string npy = kCases + "/reports/npy_bfloat16_as_void.npy";
  const CliResult refused = Run({"tensors", "convert", npy, File("out.safetensors")});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("<V2"));
  EXPECT_THAT(refused.err, HasSubstr("--dtype bfloat16"));
  EXPECT_EQ(Run({"tensors", "convert", npy, File("out.safetensors"), "--dtype", "bfloat16"}).code, 0);
  EXPECT_THAT(ReadText(File("out.safetensors")), HasSubstr("\"dtype\":\"BF16\",\"shape\":[1,8]"));
  // And back: the same bytes as a .npy of ours.
  EXPECT_EQ(Run({"tensors", "convert", File("out.safetensors"), File("back.npy")}).code, 0);
  EXPECT_EQ(Run({"tensors", "convert", File("back.npy"), File("again.safetensors"), "--dtype", "bfloat16"}).code, 0);
}

// Case 8: refused at the client, with line, path and value; nothing is sent.
TEST_F(CliOfflineTest, RefusesASpecByLineAndPath) {
  const std::string spec =
      Write("spec.yaml", "primaries: [{num_tokens: 1, hidden_size: 1, vocab_size: 1}]\nmargins:\n  primary: 0.01%\n");
  const CliResult result = Run({"run", spec, "--server", "127.0.0.1:1", "--json"});
  EXPECT_EQ(result.code, 2);
  const Json error = Json::parse(result.err);
  EXPECT_EQ(error["field"], "margins.primary");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("line 3"));
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("0.01%"));
  EXPECT_EQ(Run({"submit", File("absent.yaml")}).code, 2);
}

TEST_F(CliOfflineTest, AServerThatIsNotThereIsExitCodeSix) {
  const CliResult result = Run({"list", "--json"}, {{"KEVAL_SERVER", "127.0.0.1:1"}});
  EXPECT_EQ(result.code, 6);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(Json::parse(result.err)["code"], "UNAVAILABLE");
  EXPECT_EQ(Run({"list", "--server", "nonsense"}).code, 2);
  EXPECT_EQ(Run({"list", "--server", "unix:" + File("absent.sock")}).code, 6);
}

// Case 13.
TEST_F(CliOfflineTest, NamesTheProxyForAnotherHost) {
  for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy"}) {
    const CliResult result = Run({"info", "--server", "keval.invalid:7400", "--timeout", "10"},
                                 {{name, "http://user:secret@127.0.0.1:9"}, {"no_proxy", ""}, {"no_grpc_proxy", ""}});
    EXPECT_EQ(result.code, 6);
    EXPECT_THAT(result.err, HasSubstr(std::string("a proxy was used: the environment variable ") + name + " named it"));
    EXPECT_EQ(result.err.find("secret"), std::string::npos);
  }
}

}  // namespace
}  // namespace keval
