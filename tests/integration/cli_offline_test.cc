// The commands of keval that need no server, and what every command does where none is.
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
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
  CliResult Run(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment = {}) {
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

TEST_F(CliOfflineTest, UsageErrorsAreExitCodeTwoAndNameTheFlag) {
  struct Wrong {
    std::vector<std::string> arguments;
    const char* field;
    const char* message;  // Part of it.
  };
  const std::vector<Wrong> all = {
      {{}, "command", "one of run, submit"},
      {{"bogus"}, "command", "command: bogus must be one of run, submit"},
      {{"rnu", "a.yaml"}, "command", "did you mean run?"},
      {{"tensors"}, "command", "one of put, get"},
      {{"tensors", "lst"}, "command", "did you mean list?"},
      {{"list", "jobs"}, "argument", "argument: jobs must be left out"},
      {{"tensors", "get", "H", "x"}, "argument", "argument: x must be left out: keval tensors get takes no more"},
      {{"run"}, "SPEC", "SPEC is required"},
      {{"list", "--limt", "3"},
       "limt",
       "--limt: an unknown flag must be left out: keval list has none of this name; did "
       "you mean --limit?"},
      {{"list", "--jsn"}, "jsn", "did you mean --json?"},
      {{"list", "--\x1b[31m=3"}, "\\u001B[31m", "an unknown flag"},
      {{"list", "--limit"}, "limit", "--limit"},
      {{"list", "--limit", "-1"}, "limit", "--limit: -1 must be a whole number in [0, 2^63)"},
      {{"list", "--timeout", "soon"}, "timeout", "--timeout: soon must be a number of seconds"},
      {{"plan", "--num_tokens", "4"}, "hidden_size", "--hidden_size is required"},
      // Its being unknown is what a user must hear, not that --num_tokens is missing.
      {{"plan", "--num_tokns", "4", "--hidden_size", "1", "--vocab_size", "1"},
       "num_tokns",
       "did you mean --num_tokens?"},
      {{"plan", "--num_tokens", "1e3", "--hidden_size", "1", "--vocab_size", "1"},
       "num_tokens",
       "--num_tokens: 1e3 must be a whole number in [-2^63, 2^63)"},
      {{"plan", "--num_tokens", "9223372036854775808", "--hidden_size", "1", "--vocab_size", "1"},
       "num_tokens",
       "2^63)"},
      {{"plan", "--num_tokens", "1", "--hidden_size", "1", "--vocab_size", "1", "--chunk_elems", "x"},
       "chunk_elems",
       "x must be"},
      {{"run", "a.yaml", "--require", "wonderful"}, "require", "wonderful must be improved"},
      {{"gradient", "--in", "a", "--out", "b", "--autocast", "int8"}, "autocast", "int8 must be one of"},
      {{"gradient", "--in", "a", "--out", "b", "--chunk_elems", "0"}, "chunk_elems", "0 must be a whole number in [1,"},
      {{"gradient", "--in", "a", "--out", "o.npy"}, "out", "o.npy must be a .safetensors file"},
      {{"verdict", "a.csv", "--margin", "guard"}, "margin", "guard must be NAME=NUMBER"},
      {{"verdict", "a.csv", "--looks", "6,0"}, "looks", "0 must be a whole number in [1, 10000]"},
      {{"verdict", "a.csv", "--a_sup", "x"}, "a_sup", "x must be a number"},
      {{"tensors", "convert", "a.npy", "--dtype", "int8"}, "dtype", "int8 must be float32"},
      {{"tensors", "convert", "a.npy"}, "FILES", "one file must be"},
      {{"contract", "--seed", "18446744073709551616"}, "seed", "2^64)"},
      {{"calibrate", "a.yaml"}, "out", "calibrate takes SPEC"},
      {{"calibrate", "--jobs", "3"}, "jobs", "--summarize"},
      {{"calibrate", "a.yaml", "--out", "f", "--aa", "100001"}, "aa", "100001"}};
  for (const Wrong& wrong : all) {
    auto with_json = wrong.arguments;
    with_json.emplace_back("--json");
    const CliResult result = Run(with_json);
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.out, "");
    const Json error = Json::parse(result.err, nullptr, false);
    ASSERT_TRUE(error.is_object()) << result.err;
    EXPECT_EQ(error["code"], "INVALID_ARGUMENT");
    EXPECT_EQ(error["field"], wrong.field) << result.err;
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(wrong.message));
  }
}

// Before anything is submitted: no server answers here, which would be exit code 6.
TEST_F(CliOfflineTest, AReportFolderThatCantBeWrittenIsRefusedFirst) {
  const std::string spec = Write("spec.yaml", "primaries: [{num_tokens: 1, hidden_size: 1, vocab_size: 9}]\n");
  const std::string below_file = Write("file", "") + "/report";
  std::filesystem::create_directories(File("taken/report.json"));
  for (const std::string& folder : {below_file, File("taken")}) {
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"run", spec}, std::vector<std::string>{"report", "jobs/1"}}) {
      auto arguments = command;
      arguments.insert(arguments.end(), {"--report_dir", folder, "--json"});
      const CliResult result = Run(arguments);
      EXPECT_EQ(result.code, 2) << result.err;
      EXPECT_EQ(result.out, "");
      EXPECT_THAT(Json::parse(result.err)["field"].get<std::string>(), ::testing::StartsWith(folder));
    }
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

// Rounds counted from 1: the verdict is of fewer rounds than a look asks for, and a user is told which one lacks.
TEST_F(CliOfflineTest, NotesRoundsThatTheSamplesLack) {
  std::string samples = ReadText(kCases + "/verdict/gain_3pct.csv");
  const std::vector<std::string> command = {"verdict", File("samples.csv"), "--looks", "6", "--a_sup", ".002", "--a_eq",
                                            ".010",    "--a_ctl",           ".001"};
  Write("samples.csv", samples);
  const CliResult whole = Run(command);
  EXPECT_EQ(whole.err, "");
  std::istringstream lines(samples);
  std::string shifted;
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, ',');
    int round = 0;
    if (absl::SimpleAtoi(fields.at(2), &round)) {
      absl::StrAppend(&shifted, fields[0], ",", fields[1], ",", round + 1);
      for (std::size_t i = 3; i < fields.size(); ++i) absl::StrAppend(&shifted, ",", fields[i]);
    } else {
      shifted += line;
    }
    shifted += "\n";
  }
  Write("samples.csv", shifted);
  const CliResult late = Run(command);
  EXPECT_EQ(late.code, whole.code);
  EXPECT_THAT(late.err, HasSubstr("5 of the first 6 rounds have a value; round 0, counted from 0, is the first"));
}

TEST_F(CliOfflineTest, AnUndecidedVerdictNamesTheRoundsThereAre) {
  std::istringstream lines(ReadText(kCases + "/verdict/gain_3pct.csv"));
  std::string five;
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, ',');
    int round = 0;
    if (!absl::SimpleAtoi(fields.at(2), &round) || round < 5) absl::StrAppend(&five, line, "\n");
  }
  const CliResult result = Run({"verdict", Write("five.csv", five)});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("INCONCLUSIVE (BUDGET) after 5 of 24 rounds\n"));
}

TEST_F(CliOfflineTest, SaysThatAVerdictNeedsAPrimary) {
  const CliResult result = Run({"verdict", Write("guard.csv",
                                                 "series,role,round,quad,pos,arm,rep,ns,throttled\n"
                                                 "s1,guard,0,0,0,A,0,9,0\ns1,guard,0,0,1,B,0,9,0\n"
                                                 "s1,guard,0,0,2,B,0,9,0\ns1,guard,0,0,3,A,0,9,0\n")});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("samples: no series has the role primary; a verdict needs one"));
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
