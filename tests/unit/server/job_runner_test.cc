#include "server/job_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/fake_round_collector.h"
#include "tests/support/job_fixtures.h"
#include "tests/support/job_server.h"
#include "tests/support/temp_dir.h"

namespace keval::server {
namespace {

using keval::testing::FakeWork;
using keval::testing::JobServer;
using keval::testing::TempDir;
using keval::testing::TestSpec;
using ::testing::HasSubstr;

constexpr char kGuard[] = "32x8x200/float32/nobias";

WorkFailure Crash(const std::string& cause) {
  return {.cause = cause, .reason = "CRASHED", .detail = "signal 11 (segmentation fault)"};
}

class JobRunnerTest : public ::testing::Test {
 protected:
  v1::BenchmarkJob RunToEnd(const v1::BenchmarkSpec& spec = TestSpec()) {
    JobServer server(dir_.path(), work_);
    const std::string name = server.Create(spec).name();
    server.Start();
    return server.WaitForEnd(name);
  }

  const TempDir dir_;
  const std::shared_ptr<FakeWork> work_ = std::make_shared<FakeWork>();
};

TEST_F(JobRunnerTest, AGainIsImproved) {
  work_->gain = 0.03;
  const auto job = RunToEnd();
  EXPECT_EQ(job.state(), v1::BenchmarkJob::DONE);
  EXPECT_EQ(job.verdict(), "IMPROVED");
  EXPECT_EQ(job.reason(), "");
  EXPECT_TRUE(job.non_inferior());
  EXPECT_EQ(job.rounds_done(), 6);
  EXPECT_EQ(job.rounds_planned(), 10);
  EXPECT_EQ(job.plan().series_size(), 3);
  EXPECT_GT(job.plan().predicted_device_seconds(), 0);
  EXPECT_NE(job.spec().seed(), 0U);
  EXPECT_GE(job.end_time_unix_ms(), job.start_time_unix_ms());
  EXPECT_EQ(work_->Calls("contract"), 1);
  EXPECT_EQ(work_->Calls("pilot"), 1);
}

TEST_F(JobRunnerTest, AGuardsLossIsRegressed) {
  work_->gain = 0.03;
  work_->gain_of[kGuard] = -0.05;
  EXPECT_EQ(RunToEnd().verdict(), "REGRESSED");
}

TEST_F(JobRunnerTest, NoDifferenceIsEquivalent) { EXPECT_EQ(RunToEnd().verdict(), "EQUIVALENT"); }

TEST_F(JobRunnerTest, NoiseIsInconclusiveAtTheLastLookWithTheNextStep) {
  work_->noise = 0.2;
  const auto job = RunToEnd();
  EXPECT_EQ(job.verdict(), "INCONCLUSIVE");
  EXPECT_EQ(job.reason(), "BUDGET");
  EXPECT_EQ(job.rounds_done(), 10);
  EXPECT_FALSE(job.detail().empty());
}

TEST_F(JobRunnerTest, ABiasedControlStopsTheJob) {
  work_->gain = 0.03;
  work_->gain_of["ctl:64x8x100/float32/bias"] = 0.01;
  const auto job = RunToEnd();
  EXPECT_EQ(job.verdict(), "INCONCLUSIVE");
  EXPECT_EQ(job.reason(), "CONTROL_FAILED");
}

TEST_F(JobRunnerTest, ThrottlingOfOneArmIsNoVerdict) {  // VERDICT.md, row 3.
  work_->throttle_arm_b_of = 6;
  const auto job = RunToEnd();
  EXPECT_EQ(job.verdict(), "INCONCLUSIVE");
  EXPECT_EQ(job.reason(), "THROTTLE_ASYMMETRY");
}

TEST_F(JobRunnerTest, AGainThatCostsMemoryIsNotImproved) {  // Row 7b.
  work_->gain = 0.03;
  work_->candidate_peak_bytes = work_->base_peak_bytes + (2 << 20);
  const auto job = RunToEnd();
  EXPECT_EQ(job.verdict(), "INCONCLUSIVE");
  EXPECT_EQ(job.reason(), "MEMORY");
}

TEST_F(JobRunnerTest, AMebibyteMoreIsAllowed) {
  work_->gain = 0.03;
  work_->base_peak_bytes = 10 << 20;
  work_->candidate_peak_bytes = work_->base_peak_bytes + (1 << 20);
  EXPECT_EQ(RunToEnd().verdict(), "IMPROVED");
}

TEST_F(JobRunnerTest, AFailedContractNamesCheckAndArm) {  // Row 1.
  work_->contract.push_back({"C2", "candidate", "bfloat16/plain_bias", 0.1, 1e-5, "fail", "grad_weight"});
  const auto job = RunToEnd();
  EXPECT_EQ(job.verdict(), "CONTRACT_FAILED");
  EXPECT_EQ(job.reason(), "CANDIDATE_C2");
  EXPECT_THAT(job.detail(), HasSubstr("bfloat16/plain_bias"));
  EXPECT_EQ(job.rounds_done(), 0);
  EXPECT_EQ(work_->Calls("pilot"), 0);
}

TEST_F(JobRunnerTest, AWrongResultInABlockFailsTheContract) {
  work_->on_round = [](int round, int) -> std::optional<WorkFailure> {
    if (round < 2) return std::nullopt;
    return WorkFailure{.cause = "candidate", .reason = "WRONG_RESULT", .detail = "poison left", .is_contract = true};
  };
  const auto job = RunToEnd();
  EXPECT_EQ(job.verdict(), "CONTRACT_FAILED");
  EXPECT_EQ(job.reason(), "CANDIDATE_WRONG_RESULT");
  EXPECT_EQ(job.failure_cause(), "candidate");
  EXPECT_EQ(job.rounds_done(), 2);
}

TEST_F(JobRunnerTest, AFallbackFailsTheContractOnlyWhereTheVariantIsForced) {
  work_->candidate_falls_back = true;
  EXPECT_EQ(RunToEnd().verdict(), "EQUIVALENT");
  auto spec = TestSpec();
  spec.mutable_target()->set_force_variant(true);
  const auto job = RunToEnd(spec);
  EXPECT_EQ(job.verdict(), "CONTRACT_FAILED");
  EXPECT_EQ(job.reason(), "CANDIDATE_FALLBACK");
}

TEST_F(JobRunnerTest, AnArmThatCrashesOnceCostsARound) {  // Row 2.
  work_->gain = 0.03;
  work_->on_round = [](int round, int attempt) -> std::optional<WorkFailure> {
    if (round == 3 && attempt == 0) return Crash("candidate");
    return std::nullopt;
  };
  const auto job = RunToEnd();
  EXPECT_EQ(job.verdict(), "IMPROVED");
  EXPECT_EQ(job.rounds_done(), 6);
  EXPECT_EQ(work_->Calls("round 3"), 2);  // Collected again under its number.
}

TEST_F(JobRunnerTest, AnArmThatCrashesInTwoRoundsFails) {
  work_->on_round = [](int round, int attempt) -> std::optional<WorkFailure> {
    if ((round == 1 || round == 4) && attempt == 0) return Crash("candidate");
    return std::nullopt;
  };
  const auto job = RunToEnd();
  EXPECT_EQ(job.verdict(), "FAILED");
  EXPECT_EQ(job.reason(), "CANDIDATE_CRASHED");
  EXPECT_EQ(job.failure_cause(), "candidate");
  EXPECT_THAT(job.detail(), HasSubstr("signal 11"));
  EXPECT_EQ(job.rounds_done(), 4);
}

TEST_F(JobRunnerTest, DifferentArmsThatCrashOnceEachDoNotFail) {
  work_->on_round = [](int round, int attempt) -> std::optional<WorkFailure> {
    if (attempt > 0) return std::nullopt;
    if (round == 1) return Crash("candidate");
    if (round == 2) return Crash("base");
    return std::nullopt;
  };
  EXPECT_EQ(RunToEnd().verdict(), "EQUIVALENT");
}

TEST_F(JobRunnerTest, TheFourthLossEndsTheJobWithItsCause) {
  work_->on_round = [](int, int) -> std::optional<WorkFailure> {
    return WorkFailure{.cause = "infrastructure", .reason = "SPAWN_FAILED", .detail = "no more processes"};
  };
  const auto job = RunToEnd();
  EXPECT_EQ(job.verdict(), "FAILED");
  EXPECT_EQ(job.reason(), "INFRASTRUCTURE_SPAWN_FAILED");
  EXPECT_EQ(job.failure_cause(), "infrastructure");
  EXPECT_EQ(work_->Calls("round 0"), 4);  // Three discarded, and the one that was too many.
}

TEST_F(JobRunnerTest, AnArmThatAlwaysCrashesInOneRoundFailsToo) {
  work_->on_round = [](int, int) -> std::optional<WorkFailure> { return Crash("candidate"); };
  const auto job = RunToEnd();
  EXPECT_EQ(job.verdict(), "FAILED");
  EXPECT_EQ(job.failure_cause(), "candidate");
  EXPECT_EQ(work_->Calls("round 0"), 4);
}

TEST_F(JobRunnerTest, LossesBeforeTheRoundsCountToo) {
  work_->on_pilot = [](int attempt) -> std::optional<WorkFailure> {
    if (attempt < 2) return Crash("base");
    return std::nullopt;
  };
  work_->on_contract = [](int attempt) -> std::optional<WorkFailure> {
    if (attempt < 1) return WorkFailure{.cause = "harness", .reason = "PROTOCOL", .detail = "odd message"};
    return std::nullopt;
  };
  EXPECT_EQ(RunToEnd().verdict(), "EQUIVALENT");
  EXPECT_EQ(work_->Calls("pilot"), 3);
  EXPECT_EQ(work_->Calls("contract"), 2);
}

TEST_F(JobRunnerTest, IncompleteSamplesAreTheHarnesssFault) {
  work_->spoil = [](RoundData* data) { data->samples.pop_back(); };
  const auto job = RunToEnd();
  EXPECT_EQ(job.verdict(), "FAILED");
  EXPECT_EQ(job.reason(), "HARNESS_BAD_SAMPLES");
}

TEST_F(JobRunnerTest, ARoundWithoutASeriesIsNoRound) {
  work_->spoil = [](RoundData* data) {
    std::erase_if(data->samples, [](const verdict::Sample& sample) { return sample.series == kGuard; });
  };
  const auto job = RunToEnd();
  EXPECT_EQ(job.reason(), "HARNESS_BAD_SAMPLES");
  EXPECT_THAT(job.detail(), HasSubstr(kGuard));
}

TEST_F(JobRunnerTest, APlanOverBudgetEndsBeforeRoundOne) {
  work_->base_ns = 1e9;
  auto spec = TestSpec();
  spec.set_max_device_seconds(100);
  const auto job = RunToEnd(spec);
  EXPECT_EQ(job.verdict(), "FAILED");
  EXPECT_EQ(job.reason(), "BUDGET_EXCEEDED");
  EXPECT_THAT(job.detail(), HasSubstr("the budget is 100"));
  EXPECT_EQ(work_->Calls("round 0"), 0);
}

TEST_F(JobRunnerTest, ASlowShapesPlanTakesFewerQuads) {
  work_->pilot_ns[kGuard] = 1.25e9;
  const auto job = RunToEnd();
  EXPECT_EQ(job.plan().series(1).quads(), 4);
  EXPECT_EQ(job.plan().series(1).timed_repetitions(), 1);
  EXPECT_EQ(job.plan().series(1).discarded_repetitions(), 1);
  EXPECT_EQ(job.plan().series(0).quads(), 6);
  EXPECT_EQ(job.verdict(), "EQUIVALENT");
}

TEST_F(JobRunnerTest, DiagnosticsNeverDecide) {
  auto spec = TestSpec();
  spec.mutable_diagnostics()->set_backward_only(true);
  spec.mutable_diagnostics()->set_profile(true);
  work_->on_diagnose = []() -> std::optional<WorkFailure> { return Crash("candidate"); };
  const auto job = RunToEnd(spec);
  EXPECT_EQ(job.verdict(), "EQUIVALENT");
  EXPECT_EQ(work_->Calls("profile"), 1);
  EXPECT_EQ(work_->Calls("diagnose"), 1);
}

TEST_F(JobRunnerTest, AnAAJobCalibratesTheDevicesMargin) {
  auto spec = TestSpec();
  spec.mutable_candidate()->set_variant("portable_matmul_add");
  EXPECT_EQ(RunToEnd(spec).plan().series(0).delta_source(), "default");
  const auto primary = RunToEnd().plan().series(0);
  EXPECT_EQ(primary.delta_source(), "calibration");
  EXPECT_EQ(primary.delta(), 0.005);  // Hardly any noise: the least margin.
  EXPECT_EQ(primary.delta_calibration().origin(), "server");
  EXPECT_EQ(primary.delta_calibration().rounds(), 6);
  auto other = TestSpec();  // Of another shape nothing is known.
  other.mutable_primaries(0)->set_num_tokens(other.primaries(0).num_tokens() + 1);
  EXPECT_EQ(RunToEnd(other).plan().series(0).delta_source(), "default");
}

TEST_F(JobRunnerTest, EachSixRoundsOfAnAAJobCalibrate) {
  auto spec = TestSpec();
  spec.mutable_calibration();
  spec.mutable_procedure()->clear_looks();
  spec.mutable_procedure()->add_looks(13);
  JobServer server(dir_.path(), work_);
  server.Start();
  const auto job = server.WaitForEnd(server.Create(spec).name());
  EXPECT_EQ(job.verdict(), "EQUIVALENT");
  EXPECT_EQ(job.spec().candidate().variant(), "portable_matmul_add");
  EXPECT_EQ(work_->Calls("contract"), 0);
  for (const auto& series : job.plan().series()) {
    const auto means = server.store().Calibration("cpu|Test CPU||" + series.series());
    EXPECT_EQ(means->size(), series.role() == "control" ? 0U : 2U) << series.series();  // Twice six rounds.
  }
}

TEST_F(JobRunnerTest, AnInjectedEffectCalibratesNoMargin) {
  work_->gain = 0.03;
  auto spec = TestSpec();
  spec.mutable_calibration()->set_effect(0.03);
  JobServer server(dir_.path(), work_);
  server.Start();
  const auto job = server.WaitForEnd(server.Create(spec).name());
  EXPECT_EQ(job.verdict(), "IMPROVED");
  EXPECT_TRUE(server.store().Calibration("cpu|Test CPU||" + job.plan().series(0).series())->empty());
}

TEST_F(JobRunnerTest, AnExceptionEndsTheJobAndNotTheServer) {
  work_->on_round = [](int, int) -> std::optional<WorkFailure> { throw std::runtime_error("a planted fault"); };
  const v1::BenchmarkJob job = RunToEnd();
  EXPECT_EQ(job.verdict(), "FAILED");
  EXPECT_EQ(job.reason(), "HARNESS_EXCEPTION");
  EXPECT_EQ(job.failure_cause(), "harness");
}

TEST_F(JobRunnerTest, JobsOfADeviceRunInTurn) {
  JobServer server(dir_.path(), work_);
  std::vector<std::string> names;
  for (int i = 0; i < 3; ++i) names.push_back(server.Create(TestSpec()).name());
  server.Start();
  std::int64_t last = 0;
  for (const std::string& name : names) {
    const auto job = server.WaitForEnd(name);
    EXPECT_EQ(job.verdict(), "EQUIVALENT");
    EXPECT_GE(job.start_time_unix_ms(), last);
    last = job.end_time_unix_ms();
  }
}

TEST_F(JobRunnerTest, CancellingEndsARunningJobAndFreesTheDevice) {
  std::atomic<bool> in_round{false};
  std::atomic<bool> told{false};
  JobServer server(dir_.path(), work_);
  JobRunner* runner = &server.runner();
  work_->on_round = [&](int round, int) -> std::optional<WorkFailure> {
    in_round = in_round || round == 2;
    while (round == 2 && !told) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // A block.
    return std::nullopt;                                                                    // Then the check is asked.
  };
  const std::string name = server.Create(TestSpec()).name();
  server.Start();
  while (!in_round) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  v1::CancelJobRequest request;
  request.set_name(name);
  const auto cancelled = server.handler().Cancel("ann", request);
  told = true;
  ASSERT_TRUE(cancelled.ok());
  EXPECT_EQ(cancelled->state(), v1::BenchmarkJob::CANCELLED);
  EXPECT_EQ(cancelled->rounds_done(), 2);
  const auto next = server.WaitForEnd(server.Create(TestSpec()).name());
  EXPECT_EQ(next.verdict(), "EQUIVALENT");
  EXPECT_EQ(server.Get(name).state(), v1::BenchmarkJob::CANCELLED);
  EXPECT_EQ(server.Get(name).rounds_done(), 2);
  runner->Interrupt("jobs/unknown");  // Harmless.
}

TEST_F(JobRunnerTest, ADrainLeavesTheJobToBeResumed) {
  work_->gain = 0.03;
  std::string name;
  {
    JobServer server(dir_.path(), work_);
    std::atomic<bool> reached{false};
    work_->on_round = [&](int round, int) -> std::optional<WorkFailure> {
      if (round == 3) {
        reached = true;
        while (!server.runner().draining()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return std::nullopt;
    };
    name = server.Create(TestSpec()).name();
    server.Start();
    while (!reached) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    server.runner().Drain();
    EXPECT_EQ(server.Get(name).state(), v1::BenchmarkJob::RUNNING);
    EXPECT_EQ(server.Get(name).rounds_done(), 3);
    EXPECT_TRUE(server.store().Get(name)->stopped_clean);
  }
  work_->on_round = nullptr;
  JobServer server(dir_.path(), work_);
  server.Start();
  const auto job = server.WaitForEnd(name);
  EXPECT_EQ(job.verdict(), "IMPROVED");
  EXPECT_EQ(job.restarts(), 1);
  EXPECT_EQ(server.store().Get(name)->idle_restarts, 0);
  EXPECT_EQ(work_->Calls("contract"), 1);  // What was done is not done again.
  EXPECT_EQ(work_->Calls("pilot"), 1);
  EXPECT_EQ(work_->Calls("round 2"), 1);
  EXPECT_EQ(work_->Calls("round 3"), 2);
}

// What kill -9 leaves: the store as of some commit, state RUNNING. Made by copying the files while the job runs.
TEST_F(JobRunnerTest, AKilledServersJobGoesOnFromItsLastFinishedRound) {
  work_->gain = 0.03;
  const TempDir after_kill;
  std::string name;
  {
    JobServer server(dir_.path(), work_);
    work_->on_round = [&](int round, int) -> std::optional<WorkFailure> {
      if (round == 4) {
        for (const char* file : {"jobs.db", "jobs.db-wal"}) {
          std::filesystem::copy_file(dir_.path() + "/" + file, after_kill.path() + "/" + file,
                                     std::filesystem::copy_options::overwrite_existing);
        }
      }
      return std::nullopt;
    };
    name = server.Create(TestSpec()).name();
    server.Start();
    EXPECT_EQ(server.WaitForEnd(name).verdict(), "IMPROVED");
  }
  work_->on_round = nullptr;
  JobServer server(after_kill.path(), work_);
  EXPECT_EQ(server.Get(name).state(), v1::BenchmarkJob::RUNNING);
  EXPECT_EQ(server.Get(name).rounds_done(), 4);
  server.Start();
  const auto job = server.WaitForEnd(name);
  EXPECT_EQ(job.verdict(), "IMPROVED");
  EXPECT_EQ(job.restarts(), 1);
  EXPECT_EQ(work_->Calls("round 3"), 1);
  EXPECT_EQ(server.store().Rounds(name)->size(), 6U);
}

TEST_F(JobRunnerTest, ACrashBetweenTheDecidingLookAndTheEndLosesNothing) {
  work_->gain = 0.03;
  auto spec = TestSpec();
  spec.mutable_diagnostics()->set_backward_only(true);
  const TempDir after_kill;
  std::string name;
  {
    JobServer server(dir_.path(), work_);
    work_->on_diagnose = [&]() -> std::optional<WorkFailure> {
      for (const char* file : {"jobs.db", "jobs.db-wal"}) {
        std::filesystem::copy_file(dir_.path() + "/" + file, after_kill.path() + "/" + file);
      }
      return std::nullopt;
    };
    name = server.Create(spec).name();
    server.Start();
    server.WaitForEnd(name);
  }
  work_->on_diagnose = nullptr;
  JobServer server(after_kill.path(), work_);
  server.Start();
  const auto job = server.WaitForEnd(name);
  EXPECT_EQ(job.verdict(), "IMPROVED");
  EXPECT_EQ(job.rounds_done(), 6);
  EXPECT_EQ(work_->Calls("round 6"), 0);  // Decided at look 6: no seventh round.
}

TEST_F(JobRunnerTest, ThreeRestartsWithoutARoundAreTheLast) {
  std::string name;
  {
    JobServer server(dir_.path(), work_);
    name = server.Create(TestSpec()).name();
    JobChange change{.job = server.Get(name)};
    change.job.set_state(v1::BenchmarkJob::RUNNING);
    change.idle_restarts = 2;
    ASSERT_TRUE(server.store().Apply(change).ok());
  }
  {  // The third restart still runs, but is killed before a round: nothing but the count is left.
    JobServer server(dir_.path(), work_);
    std::atomic<bool> reached{false};
    work_->on_contract = [&](int) -> std::optional<WorkFailure> {
      reached = true;
      while (!server.runner().draining()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return std::nullopt;
    };
    server.Start();
    while (!reached) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(server.store().Get(name)->idle_restarts, 3);
    EXPECT_EQ(server.Get(name).restarts(), 1);
    server.runner().Drain();
    JobChange change{.job = server.Get(name)};
    change.stopped_clean = false;
    ASSERT_TRUE(server.store().Apply(change).ok());
  }
  work_->on_contract = nullptr;
  JobServer server(dir_.path(), work_);
  server.Start();
  const auto job = server.WaitForEnd(name);
  EXPECT_EQ(job.verdict(), "FAILED");
  EXPECT_EQ(job.reason(), "RESTARTS");
  EXPECT_EQ(job.failure_cause(), "infrastructure");
}

TEST_F(JobRunnerTest, AFullDiskHoldsTheJobUntilThereIsRoom) {
  work_->gain = 0.03;
  JobServer server(dir_.path(), work_);
  std::atomic<bool> full{false};
  work_->on_round = [&](int round, int) -> std::optional<WorkFailure> {
    if (round == 2 && !full) {
      EXPECT_TRUE(server.store().LimitPagesForTest(1).ok());
      full = true;
    }
    return std::nullopt;
  };
  const std::string name = server.Create(TestSpec()).name();
  server.Start();
  while (!full) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(server.Get(name).state(), v1::BenchmarkJob::RUNNING);  // Reads are served.
  ASSERT_TRUE(server.store().LimitPagesForTest(0).ok());
  EXPECT_EQ(server.WaitForEnd(name).verdict(), "IMPROVED");
  EXPECT_EQ(work_->Calls("round 2"), 1);  // The round that waited was not thrown away.
}

}  // namespace
}  // namespace keval::server
