// keval calibrate and keval history with a real server and real worker processes, on the smallest of shapes.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/sha256.h"
#include "tests/integration/cli_process.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace keval {
namespace {

using test_support::CliProcess;
using test_support::CliResult;
using test_support::ReadText;
using test_support::RunCli;
using test_support::ServerProcess;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class CliCalibrateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = ServerProcess::Start({.program = KEVAL_BIN_DIR "/kevald",
                                        .folder = server_folder_.path(),
                                        .arguments = {"--listen", "127.0.0.1:0"}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::make_unique<ServerProcess>(*std::move(server));
    std::ofstream(spec_) << "target: {device: cpu}\n"
                            "primaries: [{num_tokens: 32, hidden_size: 16, vocab_size: 200}]\n"
                            "procedure: {quads: 3, timed_repetitions: 3, discarded_repetitions: 1}\n";
  }

  CliResult Run(std::vector<std::string> arguments) {
    return RunCli(folder_.path(), std::move(arguments), {{"KEVAL_SERVER", server_->control()}});
  }
  Json File() const { return Json::parse(ReadText(file_)); }
  // Its D of the primary by effect.
  std::vector<double> Primary(double effect) const {
    std::vector<double> values;
    const Json file = File();
    for (const Json& round : file.at("rounds")) {
      if (round.at("effect") == effect) values.push_back(round.at("series").at("primary"));
    }
    return values;
  }

  testing::TempDir server_folder_;
  testing::TempDir folder_;
  std::unique_ptr<ServerProcess> server_;
  const std::string spec_ = folder_.path() + "/spec.yaml";
  const std::string file_ = folder_.path() + "/calibration.json";
};

TEST_F(CliCalibrateTest, CollectsResumesAndSummarizes) {
  const std::vector<std::string> collect = {
      "calibrate", spec_, "--out", file_, "--rounds", "4", "--effects", "0.5", "--rounds_per_job", "6"};
  auto first = collect;
  first.insert(first.end(), {"--aa", "6"});
  CliResult result = Run(first);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Primary(0).size(), 6U);
  ASSERT_EQ(Primary(0.5).size(), 4U);
  const std::vector<double> injected = Primary(0.5);
  EXPECT_GT((injected[0] + injected[1] + injected[2] + injected[3]) / 4, 0.1) << "0.5 were injected";
  const Json before = File().at("rounds");
  for (const Json& round : before) {
    EXPECT_EQ(round.at("kind"), round.at("effect") == 0 ? "aa" : "injected");
    EXPECT_TRUE(absl::EndsWith(round.at("started").get<std::string>(), "Z"));
    EXPECT_TRUE(round.at("series").at("control").is_number());
  }
  EXPECT_EQ(File().at("collected").size(), 1U);

  // What is there stays as it is; only what lacks is collected.
  auto more = collect;
  more.insert(more.end(), {"--aa", "11", "--json"});
  result = Run(more);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out).at("rounds"), 15);
  const Json after = File().at("rounds");
  ASSERT_EQ(after.size(), 15U);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i], before[i]);
  EXPECT_EQ(Primary(0).size(), 11U);
  EXPECT_EQ(File().at("collected").size(), 1U);

  // Offline: no server is asked.
  result = RunCli(folder_.path(), {"calibrate", "--summarize", file_, "--json", "--jobs", "50"},
                  {{"KEVAL_SERVER", "127.0.0.1:1"}});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json summary = Json::parse(result.out);
  EXPECT_EQ(summary.at("rounds"), 15);
  EXPECT_EQ(summary.at("effects").size(), 2U);
  EXPECT_EQ(summary.at("effects")[0].at("jobs")[0].at("formed"), "disjoint");
  EXPECT_EQ(summary.at("effects")[0].at("runs"), 2);                // The injected rounds came between.
  EXPECT_EQ(summary.at("effects")[0].at("jobs")[0].at("jobs"), 1);  // Of the first six; the other five are too few.
  EXPECT_EQ(summary.at("effects")[0].at("autocorrelation").at("pairs"), 9);
  for (const Json& target : summary.at("targets")) {
    EXPECT_THAT(target.at("status"), ::testing::AnyOf("undecided", "no_rounds", "not_applicable", "missed")) << target;
  }
  EXPECT_FALSE(summary.at("notes").empty());
  EXPECT_EQ(summary.at("delta_source"), "calibration");
}

// The calibration's shape, and four rounds of it beside a guard that nobody calibrated.
constexpr char kJobSpec[] =
    "target: {device: cpu}\n"
    "primaries: [{num_tokens: 32, hidden_size: 16, vocab_size: 200}]\n"
    "guards: [{num_tokens: 16, hidden_size: 16, vocab_size: 200}]\n"
    "procedure: {looks: [4], quads: 3, timed_repetitions: 1, discarded_repetitions: 1}\n";

TEST_F(CliCalibrateTest, MarginsOfAFileReachAJobOnAnotherServerAndAreNamed) {
  ASSERT_EQ(Run({"calibrate", spec_, "--out", file_, "--aa", "6", "--rounds", "0", "--rounds_per_job", "6"}).code, 0);
  testing::TempDir other_folder;  // A server that has measured nothing itself.
  auto other = ServerProcess::Start(
      {.program = KEVAL_BIN_DIR "/kevald", .folder = other_folder.path(), .arguments = {"--listen", "127.0.0.1:0"}});
  ASSERT_TRUE(other.ok()) << other.status();
  const std::string job = folder_.path() + "/job.yaml";
  std::ofstream(job) << kJobSpec;
  const std::string reports = folder_.path() + "/reports";
  const CliResult run =
      RunCli(folder_.path(), {"run", job, "--calibration", file_, "--report_dir", reports, "--require", "any"},
             {{"KEVAL_SERVER", other->control()}});
  ASSERT_EQ(run.code, 0) << run.err;
  const Json report = Json::parse(ReadText(reports + "/report.json"));
  const Json& primary = report.at("plan").at("series").at(0);
  EXPECT_EQ(primary.at("delta_source"), "calibration");
  EXPECT_EQ(primary.at("delta_calibration").at("origin"), "spec");
  EXPECT_EQ(primary.at("delta_calibration").at("sha256"), Sha256Hex(ReadText(file_)));
  EXPECT_EQ(primary.at("delta_calibration").at("rounds"), 6);
  EXPECT_EQ(primary.at("delta_calibration").at("device"), File().at("device"));
  double sum = 0;
  for (const double value : Primary(0)) sum += value;
  EXPECT_NEAR(primary.at("delta").get<double>(), std::clamp(2 * std::abs(sum / 6), 0.005, 0.02), 1e-12);
  EXPECT_EQ(report.at("plan").at("series").at(1).at("delta_source"), "default");  // The guard.
  EXPECT_EQ(report.at("series").at(0).at("delta_calibration").at("rounds"), 6);
  EXPECT_EQ(report.at("config").at("delta").at("32x16x200/float32/nobias"), primary.at("delta"));
  EXPECT_THAT(report.at("notes").dump(), HasSubstr("6 A/A rounds"));

  // The first server remembers its own jobs; without the file that is what it goes by.
  const CliResult own = Run({"submit", job, "--validate_only", "--json"});
  ASSERT_EQ(own.code, 0) << own.err;
  const Json planned = Json::parse(own.out).at("plan").at("series").at(0);
  EXPECT_EQ(planned.at("delta_source"), "calibration");
  EXPECT_EQ(planned.at("delta_calibration").at("origin"), "server");
}

TEST_F(CliCalibrateTest, ACalibrationThatDoesNotFitIsNotUsedAndThatIsSaid) {
  const auto write = [&](const std::string& device, const std::string& series) {
    Json rounds = Json::array();
    for (int i = 0; i < 6; ++i) {
      rounds.push_back(
          {{"kind", "aa"}, {"effect", 0}, {"started", ""}, {"series", {{"primary", 0.009}, {"control", 0}}}});
    }
    const Json file = {{"device", device}, {"spec", {{"series", series}}}, {"rounds", rounds}};
    std::ofstream(file_) << file.dump();
  };
  const std::string job = folder_.path() + "/job.yaml";
  std::ofstream(job) << kJobSpec;
  const std::vector<std::string> submit = {"submit", job, "--validate_only", "--calibration", file_, "--json"};
  const Json info = Json::parse(Run({"info", "--json"}).out);
  const std::string model = info.at("devices").at(0).at("model");
  struct Case {
    std::string device;
    std::string series;
    std::string source;
    std::string said;
  };
  const Case cases[] = {{model, "32x16x200/float32/nobias", "calibration", ""},
                        {"another CPU", "32x16x200/float32/nobias", "default", "collected on another CPU"},
                        {model, "33x16x200/float32/nobias", "default", "no primary or guard"}};
  for (const Case& one : cases) {
    write(one.device, one.series);
    const CliResult result = Run(submit);
    ASSERT_EQ(result.code, 0) << result.err;
    const Json plan = Json::parse(result.out).at("plan");
    EXPECT_EQ(plan.at("series").at(0).at("delta_source"), one.source) << one.device;
    const Json unused = plan.value("unused_calibrations", Json::array());
    EXPECT_EQ(unused.size(), one.said.empty() ? 0U : 1U);
    EXPECT_THAT(unused.dump(), HasSubstr(one.said));
  }
  // And in the report of a job that ran.
  const std::string reports = folder_.path() + "/reports";
  const CliResult run = Run({"run", job, "--calibration", file_, "--report_dir", reports, "--require", "any"});
  ASSERT_EQ(run.code, 0) << run.err;
  const Json report = Json::parse(ReadText(reports + "/report.json"));
  EXPECT_EQ(report.at("plan").at("series").at(0).at("delta_source"), "default");
  EXPECT_THAT(report.at("notes").dump(), HasSubstr("gives no margin: no primary or guard"));
  EXPECT_THAT(ReadText(reports + "/report.md"), HasSubstr("gives no margin"));

  std::ofstream(file_) << R"({"device": "x", "spec": {"series": "y"}, "rounds": []})";
  EXPECT_EQ(Run(submit).code, 2);  // Nothing to take a margin from.
  std::ofstream(file_) << R"({"device": "x", "rounds": []})";
  EXPECT_EQ(Run(submit).code, 2);
}

TEST_F(CliCalibrateTest, RefusesAFileOfAnotherShapeAndLeavesIt) {
  ASSERT_EQ(Run({"calibrate", spec_, "--out", file_, "--aa", "0", "--rounds", "0"}).code, 0);  // Nothing but its head.
  std::string text = ReadText(file_);
  EXPECT_TRUE(File().at("rounds").empty());
  std::ofstream(spec_) << "target: {device: cpu}\nprimaries: [{num_tokens: 33, hidden_size: 16, vocab_size: 200}]\n";
  const CliResult result = Run({"calibrate", spec_, "--out", file_, "--aa", "3", "--json"});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(Json::parse(result.err.substr(result.err.find('{'))).at("code"), "FAILED_PRECONDITION");
  EXPECT_THAT(result.err, HasSubstr("33x16x200"));
  EXPECT_EQ(ReadText(file_), text);
}

TEST_F(CliCalibrateTest, AnInterruptKeepsEveryRoundAndEndsTheJob) {
  CliProcess process(folder_.path(), {"calibrate", spec_, "--out", file_, "--aa", "150", "--rounds_per_job", "150"},
                     {{"KEVAL_SERVER", server_->control()}});
  const absl::Time deadline = absl::Now() + absl::Seconds(120);
  while (!absl::StrContains(process.Err(), "round 2 in") && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(absl::Seconds(60)).code, 7);
  EXPECT_GE(File().at("rounds").size(), 2U);
  const CliResult list = Run({"list", "--json"});
  ASSERT_EQ(list.code, 0) << list.err;
  EXPECT_EQ(Json::parse(list.out).at("jobs").at(0).at("state"), "CANCELLED");
}

// A kill can't cancel the job: the next call takes what it did meanwhile, each round once, and makes no second job.
TEST_F(CliCalibrateTest, AfterAKillTheNextCallGoesOnWithTheJob) {
  const std::vector<std::string> command = {"calibrate",        spec_, "--out", file_, "--aa", "10", "--rounds", "0",
                                            "--rounds_per_job", "10"};
  CliProcess process(folder_.path(), command, {{"KEVAL_SERVER", server_->control()}});
  const absl::Time deadline = absl::Now() + absl::Seconds(120);
  while (!absl::StrContains(process.Err(), "round 2 in") && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  process.Signal(SIGKILL);
  process.Wait(absl::Seconds(60));
  EXPECT_GE(File().at("rounds").size(), 1U);  // Whole, whenever the kill came.
  EXPECT_TRUE(File().at("job").is_object());

  const CliResult again = Run(command);
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("going on with the job"));
  EXPECT_FALSE(File().contains("job"));
  const std::vector<double> values = Primary(0);
  EXPECT_EQ(values.size(), 10U);
  EXPECT_EQ(std::set<double>(values.begin(), values.end()).size(), 10U) << "a round was taken twice";
  EXPECT_EQ(Json::parse(Run({"list", "--json"}).out).at("jobs").size(), 1U);
}

TEST_F(CliCalibrateTest, RefusesWhatItCantMeasure) {
  const std::vector<std::vector<std::string>> commands = {
      {"calibrate"},
      {"calibrate", spec_},
      {"calibrate", spec_, "--out", file_, "--effects", "0"},
      {"calibrate", spec_, "--out", file_, "--effects", "0.6"},
      {"calibrate", spec_, "--out", file_, "--rounds_per_job", "2"},
      {"calibrate", spec_, "--out", folder_.path() + "/none/file.json"},
      {"calibrate", "--summarize", folder_.path() + "/none.json"},
      {"calibrate", "--summarize", spec_}};
  for (const auto& command : commands) {
    const CliResult result = Run(command);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_FALSE(result.err.empty());
  }
  std::ofstream(spec_) << "primaries: [{num_tokens: 1, hidden_size: 1, vocab_size: 9}]\n"
                          "guards: [{num_tokens: 2, hidden_size: 1, vocab_size: 9}]\n";
  EXPECT_EQ(Run({"calibrate", spec_, "--out", file_}).code, 2);
}

constexpr char kSmallSpec[] =
    "target: {device: cpu}\n"
    "primaries: [{num_tokens: 32, hidden_size: 16, vocab_size: 200}]\n"
    "procedure: {looks: [4], quads: 3, timed_repetitions: 1, discarded_repetitions: 1}\n";

TEST_F(CliCalibrateTest, HistoryComparesNoJobsAcrossFingerprintsUnlessTold) {
  std::ofstream(spec_) << kSmallSpec;
  ASSERT_EQ(Run({"run", spec_, "--require", "any", "--json"}).code, 0);
  // Another worker, to every hash of it.
  const std::string worker = folder_.path() + "/keval-worker";
  std::filesystem::copy_file(KEVAL_BIN_DIR "/keval-worker", worker);
  std::ofstream(worker, std::ios::app | std::ios::binary) << '\0';
  server_.reset();
  auto server = ServerProcess::Start({.program = KEVAL_BIN_DIR "/kevald",
                                      .folder = server_folder_.path(),
                                      .arguments = {"--listen", "127.0.0.1:0", "--worker_program", worker}});
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = std::make_unique<ServerProcess>(*std::move(server));
  ASSERT_EQ(Run({"run", spec_, "--require", "any", "--json"}).code, 0);

  const CliResult refused = Run({"history", spec_});
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.err, HasSubstr("worker_sha256"));
  EXPECT_THAT(refused.err, HasSubstr("--across-fingerprints"));
  const CliResult told = Run({"history", spec_, "--across-fingerprints"});
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_THAT(told.out, HasSubstr("-- not comparable with what is above: worker_sha256"));
  const CliResult json = Run({"history", spec_, "--across-fingerprints", "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  const Json document = Json::parse(json.out);
  ASSERT_EQ(document.at("fingerprints").size(), 2U);
  EXPECT_EQ(document.at("fingerprints")[1].at("changed")[0].at("fact"), "worker_sha256");
}

TEST_F(CliCalibrateTest, HistoryShowsASpecsJobsAndNoOthers) {
  std::ofstream(spec_) << kSmallSpec;
  CliResult history = Run({"history", spec_});
  EXPECT_EQ(history.code, 0) << history.err;
  EXPECT_THAT(history.out, HasSubstr("no job of this spec yet"));
  std::vector<std::string> names;
  for (int i = 0; i < 2; ++i) {
    const CliResult run = Run({"run", spec_, "--require", "any", "--json"});
    ASSERT_EQ(run.code, 0) << run.err;
    names.insert(names.begin(), Json::parse(run.out).at("name"));
  }
  const std::string other = folder_.path() + "/other.yaml";
  std::ofstream(other) << ReadText(spec_) << "display_name: another\n";
  ASSERT_EQ(Run({"cancel", Json::parse(Run({"submit", other, "--json"}).out).at("name"), "--json"}).code, 0);

  history = Run({"history", spec_, "--json"});
  ASSERT_EQ(history.code, 0) << history.err;
  const Json document = Json::parse(history.out);
  EXPECT_EQ(document.at("spec_digest").get<std::string>().size(), 64U);
  ASSERT_EQ(document.at("jobs").size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const Json& job = document.at("jobs")[i];
    EXPECT_EQ(job.at("name"), names[i]);
    EXPECT_EQ(job.at("fingerprint"), 0);
    ASSERT_EQ(job.at("series").size(), 2U);
    EXPECT_EQ(job.at("series")[0].at("series"), "32x16x200/float32/nobias");
    EXPECT_TRUE(job.at("series")[0].at("L").is_number());
    EXPECT_TRUE(job.at("series")[0].at("sup_lo").is_number());
  }
  EXPECT_EQ(document.at("fingerprints").size(), 1U);
  EXPECT_EQ(document.at("fingerprints")[0].at("facts").at("device"), "cpu");
  EXPECT_EQ(document.at("fingerprints")[0].at("facts").at("worker_sha256").get<std::string>().size(), 64U);
  EXPECT_THAT(Run({"history", spec_}).out, HasSubstr(names[1]));
  EXPECT_EQ(Json::parse(Run({"history", spec_, "--limit", "1", "--json"}).out).at("jobs").size(), 1U);
  EXPECT_EQ(Run({"history", folder_.path() + "/none.yaml"}).code, 2);
}

}  // namespace
}  // namespace keval
