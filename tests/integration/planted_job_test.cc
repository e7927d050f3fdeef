// Faults planted in every part of a job, through keval, kevald and its workers: each ends the job with a reason, a
// cause and an exit code of its own, told in report.json and report.md, and the next job on the same server passes.
//
// Tests of planted faults are instantiated under names that begin with `planted_`, here and elsewhere: `ctest -R
// '^planted_'` lists them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/number.h"
#include "tests/integration/cli_process.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace keval {
namespace {

using test_support::CliResult;
using test_support::ReadText;
using test_support::RunCli;
using test_support::ServerProcess;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

struct PlantedJob {
  std::string name;  // Of the fault.
  std::string base = "portable_matmul_add";
  std::string candidate = "planted_right";
  std::string verdict;
  std::string reason;
  std::string cause;
  int exit_code = 0;
  std::string says;  // In the detail.
  bool force_variant = false;
  std::string autocast = "none";
  int num_tokens = 16;
  int hidden_size = 8;
  std::string dtype = "float32";
  std::string process_mode = "concurrent";
  bool by_kernel = false;  // The kill that the fault waits for.
};

// Plays the operator, or the kernel for want of memory: kills each worker that asks for it from its arm's code, and
// before that, where there are `counters`, counts one more of the kernel's kills there.
class Killer {
 public:
  Killer(std::string log, std::string counters)
      : log_(std::move(log)), counters_(std::move(counters)), thread_([this] { Watch(); }) {}
  ~Killer() {
    done_ = true;
    thread_.join();
  }
  Killer(const Killer&) = delete;
  Killer& operator=(const Killer&) = delete;

 private:
  void Watch() {
    for (int killed = 0; !done_;) {
      std::ifstream file(log_);
      std::vector<pid_t> asked;
      for (std::string line; std::getline(file, line) && !file.eof();) {  // Whole lines.
        asked.push_back(static_cast<pid_t>(ParseInt64(line).value_or(-1)));
      }
      for (; killed < static_cast<int>(asked.size()); ++killed) {
        const pid_t pid = asked[static_cast<std::size_t>(killed)];
        if (pid <= 1) continue;
        if (!counters_.empty()) std::ofstream(counters_) << absl::StrCat("oom_kill ", killed + 1, "\n");
        kill(pid, SIGKILL);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  const std::string log_;
  const std::string counters_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

// The sly variants of planted_variants.h know this vocabulary. Where nothing is wrong the job is EQUIVALENT: levels
// that chance doesn't meet leave no other verdict, and on a machine that is too busy for one look there are more.
std::string SpecOf(const PlantedJob& job) {
  return absl::StrReplaceAll(R"(
target: {device: cpu, force_variant: $FORCE}
base: {variant: $BASE}
candidate: {variant: $CANDIDATE}
primaries: [{num_tokens: $TOKENS, hidden_size: $HIDDEN, vocab_size: 331, dtype: $DTYPE, bias: true,
             autocast: $AUTOCAST}]
margins: {primary: 0.5}
procedure: {looks: [4, 8, 16], a_sup: [1e-9, 1e-9, 1e-9], a_eq: [0.1, 0.1, 0.1], a_ctl: [1e-9, 1e-9, 1e-9], quads: 4,
            timed_repetitions: 2, discarded_repetitions: 1, hang_timeout_seconds: $HANG, process_mode: $MODE}
seed: 7
)",
                             {{"$FORCE", job.force_variant ? "true" : "false"},
                              {"$BASE", job.base},
                              {"$CANDIDATE", job.candidate},
                              {"$TOKENS", absl::StrCat(job.num_tokens)},
                              {"$DTYPE", job.dtype},
                              {"$HIDDEN", absl::StrCat(job.hidden_size)},
                              {"$AUTOCAST", job.autocast},
                              {"$MODE", job.process_mode},
                              {"$HANG", absl::StrContains(job.reason, "HUNG") ? "3" : "60"}});
}

class JobOnPlantedServer : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(File("counters")) << "oom_kill 0\n";
    auto server = ServerProcess::Start(
        {.program = KEVAL_PLANTED_SERVER,
         .folder = folder_.path(),
         .arguments = {"--worker_program", KEVAL_PLANTED_WORKER, "--oom_counters", File("counters")},
         .environment = {{"KEVAL_PLANTED_LOG", File("log")}}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_.emplace(*std::move(server));
  }

  std::string File(const std::string& name) const { return folder_.path() + "/" + name; }

  CliResult Run(const PlantedJob& job, const std::string& report, const std::string& require = "any") {
    std::ofstream(File("spec.yaml")) << SpecOf(job);
    return RunCli(folder_.path(),
                  {"run", File("spec.yaml"), "--require", require, "--report_dir", File(report), "--json"},
                  {{"KEVAL_SERVER", server_->control()}});
  }

  Json ReportOf(const std::string& report) const {
    return Json::parse(ReadText(File(report + "/report.json")), nullptr, false);
  }

  // A job of right arms is EQUIVALENT, and its report shows by what.
  void ExpectEquivalent(const CliResult& result, const std::string& name) const {
    EXPECT_EQ(result.code, 0) << result.err << result.out;
    const Json report = ReportOf(name);
    ASSERT_TRUE(report.is_object());
    EXPECT_EQ(report.value("verdict", ""), "EQUIVALENT") << report.value("detail", "");
    EXPECT_EQ(report.value("failure_cause", ""), "");
    ASSERT_EQ(report.at("series").size(), 2U);
    for (const Json& series : report.at("series")) EXPECT_GE(series.at("n"), 4) << series;
    ASSERT_FALSE(report.at("looks").empty());
    EXPECT_EQ(report.at("looks").back().at("candidate"), "EQUIVALENT");
    EXPECT_THAT(ReadText(File(name + "/report.md")), HasSubstr("EQUIVALENT"));
    EXPECT_THAT(ReadText(File(name + "/junit.xml")), HasSubstr("failures=\"0\""));
  }

  const testing::TempDir folder_;
  std::optional<ServerProcess> server_;
};

class PlantedJobTest : public JobOnPlantedServer, public ::testing::WithParamInterface<PlantedJob> {};

TEST_P(PlantedJobTest, EndsWithItsOwnReasonAndTheNextJobPasses) {
  const PlantedJob& job = GetParam();
  const Killer killer(File("log"), job.by_kernel ? File("counters") : "");
  const CliResult result = Run(job, "report");
  EXPECT_EQ(result.code, job.exit_code) << result.err << result.out;
  const Json report = ReportOf("report");
  ASSERT_TRUE(report.is_object());
  const std::string detail = report.value("detail", "");
  EXPECT_EQ(report.value("verdict", ""), job.verdict) << detail;
  EXPECT_EQ(report.value("reason", ""), job.reason) << detail;
  EXPECT_EQ(report.value("failure_cause", ""), job.cause) << detail;
  EXPECT_THAT(detail, HasSubstr(job.says));
  const std::string markdown = ReadText(File("report/report.md"));
  EXPECT_THAT(markdown, HasSubstr(job.reason));
  EXPECT_THAT(markdown, HasSubstr(job.says));
  if (job.cause == "base" || job.cause == "candidate") {
    // By the variant's name or, in a line of the contract, by the arm's.
    EXPECT_THAT(detail, AnyOf(HasSubstr(job.cause == "base" ? job.base : job.candidate),
                              HasSubstr(absl::StrCat(", ", job.cause, "): "))));
  }

  ExpectEquivalent(Run({}, "next", "equivalent"), "next");
}

TEST_F(JobOnPlantedServer, SequentialModeIsNamedAsWeaker) {
  ExpectEquivalent(Run({.process_mode = "sequential"}, "report", "equivalent"), "report");
  const Json report = ReportOf("report");
  ASSERT_TRUE(report.is_object());
  EXPECT_THAT(report.value("detail", ""), HasSubstr("process_mode sequential: a weaker procedure"));
  EXPECT_EQ(report["plan"]["process_mode"], "sequential");
  EXPECT_GT(report["plan"]["predicted_memory_bytes"], 0);
  EXPECT_THAT(report["notes"].dump(), HasSubstr("process_mode sequential, a weaker procedure"));
  EXPECT_THAT(ReadText(File("report/report.md")), HasSubstr("a weaker procedure"));
}

TEST_F(JobOnPlantedServer, AFallbackThatIsAllowedIsTold) {
  ExpectEquivalent(Run({.candidate = "planted_falls_back"}, "report", "equivalent"), "report");
  const Json report = ReportOf("report");
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["series"][0]["dispatch"]["candidate"]["fallback"], true);
  EXPECT_THAT(report["notes"].dump(), HasSubstr("did not take its own path"));
  EXPECT_THAT(ReadText(File("report/report.md")), HasSubstr("another path; planted"));
}

const auto kName = [](const auto& test) { return test.param.name; };

PlantedJob Cheat(const std::string& fault, const std::string& reason, const std::string& says) {
  return {.name = fault,
          .candidate = "planted_" + fault,
          .verdict = "CONTRACT_FAILED",
          .reason = "CANDIDATE_" + reason,
          .cause = "candidate",
          .exit_code = 4,
          .says = says};
}

// Enough elements for a distribution of errors to be one.
PlantedJob Larger(PlantedJob job) {
  job.num_tokens = 64;
  job.hidden_size = 128;
  return job;
}

// The contract check sees what is always wrong; what behaves there, its sly twin, is caught where it is measured.
INSTANTIATE_TEST_SUITE_P(
    planted_cheat, PlantedJobTest,
    ::testing::Values(Cheat("cached", "P3", "P3 ("), Cheat("changes_inputs", "C3", "wrote to hidden"),
                      Cheat("sly_wrong", "WRONG_RESULT", "not what portable_matmul_add computes"),
                      Cheat("sly_cached", "CACHED_RESULT", "returned a cached result"),
                      Cheat("sly_memoises", "CACHED_RESULT", "returned a cached result: grad_hidden"),
                      Cheat("sly_memoises_logp", "CACHED_RESULT", "returned a cached result: logp"),
                      Cheat("sly_not_repeatable", "NOT_REPEATABLE", "gives other bits when it computes"),
                      Cheat("sly_falls_back_late", "TIMED_DIFFERENTLY", "took another path in a block"),
                      Cheat("sly_unfinished", "UNFINISHED_WORK", "returned before its work was done"),
                      Cheat("sly_changes_inputs", "INPUTS_CHANGED", "changed its inputs: hidden"),
                      Cheat("sly_changes_late", "INPUTS_CHANGED", "changed its inputs: hidden"),
                      Larger(Cheat("sly_rounded", "LOW_PRECISION", "computes float32 with fewer bits")),
                      Cheat("sly_changes_precision", "PRECISION_CHANGED", "precision settings"),
                      Cheat("sly_recycled", "RECYCLED_MEMORY", "reads memory that it has not written"),
                      Cheat("sly_partly_written", "NOT_WRITTEN", "partly unwritten"),
                      Cheat("sly_skips_late", "TIMED_DIFFERENTLY", "computes otherwise when timed"),
                      Cheat("sly_skips_most", "TIMED_DIFFERENTLY", "computes otherwise when timed")),
    kName);

// Claims no production path, and computes in 16 bits.
PlantedJob Foreign(const std::string& fault, const std::string& reason, const std::string& says) {
  PlantedJob job = Larger(Cheat("sly_foreign_" + fault, reason, says));
  job.dtype = "bfloat16";
  return job;
}

INSTANTIATE_TEST_SUITE_P(
    planted_cheat_foreign, PlantedJobTest,
    ::testing::Values(Foreign("wrong", "WRONG_RESULT", "throughout larger or smaller"),
                      Foreign("cached", "CACHED_RESULT", "returned a cached result"),
                      Foreign("recycled", "RECYCLED_MEMORY", "reads memory that it has not written"),
                      Foreign("unfinished", "UNFINISHED_WORK", "returned before its work was done"),
                      Foreign("skips_most", "TIMED_DIFFERENTLY", "computes otherwise when timed")),
    kName);

PlantedJob Fallback(const std::string& name, const std::string& candidate, const std::string& autocast,
                    const std::string& says) {
  return {.name = name,
          .candidate = candidate,
          .verdict = "CONTRACT_FAILED",
          .reason = "CANDIDATE_FALLBACK",
          .cause = "candidate",
          .exit_code = 4,
          .says = says,
          .force_variant = true,
          .autocast = autocast};
}

PlantedJob FallbackOfBase(PlantedJob job) {
  job.name += "_of_base";
  job.base = std::exchange(job.candidate, "planted_right");
  job.cause = "base";
  job.reason = "BASE_FALLBACK";
  return job;
}

// One is planted, one is the product's own: under autocast portable_addmm takes base's path.
INSTANTIATE_TEST_SUITE_P(
    planted_fallback, PlantedJobTest,
    ::testing::Values(Fallback("planted", "planted_sly_falls_back", "none",
                               "another path, which force_variant forbids: another path: planted"),
                      FallbackOfBase(Fallback("planted", "planted_sly_falls_back", "none",
                                              "another path, which force_variant forbids: another path: planted")),
                      Fallback("autocast", "portable_addmm", "bfloat16", "autocast is on")),
    kName);

PlantedJob Loss(const std::string& name, const std::string& candidate, const std::string& cause,
                const std::string& reason, const std::string& says) {
  return {.name = name,
          .candidate = candidate,
          .verdict = "FAILED",
          .reason = reason,
          .cause = cause,
          .exit_code = cause == "candidate" ? 5 : 6,
          .says = says};
}

PlantedJob OfBase(PlantedJob job) {
  job.name += "_of_base";
  job.base = std::exchange(job.candidate, "planted_right");
  job.cause = "base";
  job.exit_code = 5;
  return job;
}

PlantedJob WithRoomFor(PlantedJob job) {
  job.hidden_size = 4096;  // Inputs that need an allocation of their own.
  return job;
}

PlantedJob ByKernel(PlantedJob job) {
  job.by_kernel = true;
  return job;
}

INSTANTIATE_TEST_SUITE_P(
    planted_loss, PlantedJobTest,
    ::testing::Values(
        Loss("crash", "planted_aborts", "candidate", "CANDIDATE_CRASHED", "died of SIGABRT"),
        Loss("late_crash", "planted_sly_aborts_late", "candidate", "CANDIDATE_CRASHED", "died of SIGABRT"),
        OfBase(Loss("crash", "planted_sly_segfaults", "base", "BASE_CRASHED", "died of SIGSEGV")),
        Loss("crash_with_a_helper_left", "planted_sly_leaves_helper", "candidate", "CANDIDATE_CRASHED",
             "exited with code 7"),
        Loss("crash_of_harness_in_contract", "planted_harness_crashes_in_contract", "harness", "HARNESS_CRASHED",
             "in keval's own code died of SIGSEGV"),
        Loss("crash_of_harness", "planted_harness_crashes", "harness", "HARNESS_CRASHED", "in keval's own code"),
        Loss("illegal_access", "planted_sly_illegal_access", "candidate", "CANDIDATE_ILLEGAL_ACCESS",
             "illegal memory access"),
        OfBase(Loss("illegal_access", "planted_sly_illegal_access", "base", "BASE_ILLEGAL_ACCESS",
                    "illegal memory access")),
        Loss("hang", "planted_sly_hangs_late", "candidate", "CANDIDATE_HUNG", "did not answer within 3.0 s"),
        OfBase(Loss("hang", "planted_sly_hangs_late", "base", "BASE_HUNG", "did not answer within 3.0 s")),
        Loss("hang_of_harness", "planted_harness_hangs", "harness", "HARNESS_HUNG", "in keval's own code"),
        Loss("out_of_memory", "planted_sly_out_of_memory", "candidate", "CANDIDATE_OUT_OF_MEMORY", "ran out of memory"),
        Loss("out_of_memory_in_contract", "planted_out_of_memory", "candidate", "CANDIDATE_OUT_OF_MEMORY",
             "in the contract, candidate: "),
        OfBase(Loss("out_of_memory", "planted_sly_out_of_memory", "base", "BASE_OUT_OF_MEMORY", "ran out of memory")),
        WithRoomFor(Loss("out_of_memory_of_harness", "planted_harness_out_of_memory", "harness",
                         "HARNESS_OUT_OF_MEMORY", "in keval's own code ran out of memory")),
        Loss("harness_babbles", "planted_harness_babbles", "harness", "HARNESS_PROTOCOL_ERROR",
             "answered something else to a block"),
        Loss("device_lost", "planted_sly_loses_device", "device", "DEVICE_LOST", "lost the device"),
        Loss("device_lost_in_contract", "planted_loses_device", "device", "DEVICE_LOST", "in the contract, device: "),
        Loss("killed", "planted_sly_awaits_killer", "infrastructure", "INFRASTRUCTURE_KILLED",
             "was killed from outside (SIGKILL)"),
        ByKernel(Loss("killed_by_kernel", "planted_sly_awaits_killer", "infrastructure",
                      "INFRASTRUCTURE_KILLED_BY_KERNEL", "while the kernel was killing for want of memory"))),
    kName);

// A throttled device is nobody's failure: the job says that it can't tell, which `--require any` takes for an answer.
INSTANTIATE_TEST_SUITE_P(planted_throttling, PlantedJobTest,
                         ::testing::Values(PlantedJob{.name = "of_one_arm",
                                                      .candidate = "planted_throttled",
                                                      .verdict = "INCONCLUSIVE",
                                                      .reason = "THROTTLE_ASYMMETRY",
                                                      .exit_code = 0,
                                                      .says = "Throttling"},
                                           PlantedJob{.name = "of_both_arms",
                                                      .base = "planted_throttled",
                                                      .candidate = "planted_throttled",
                                                      .verdict = "INCONCLUSIVE",
                                                      .reason = "THROTTLE_BUDGET",
                                                      .exit_code = 0,
                                                      .says = "Throttling"}),
                         kName);

}  // namespace
}  // namespace keval
