// A job in a server that came back otherwise than it went, and one that takes longer than it may.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <SQLiteCpp/SQLiteCpp.h>

#include <nlohmann/json.hpp>

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
using ::testing::Not;

class JobRestartTest : public ::testing::Test {
 protected:
  // Runs a job until it has `rounds` rounds, then drains; returns its name.
  std::string RunUntil(int rounds, const v1::BenchmarkSpec& spec = TestSpec()) {
    JobServer server(dir_.path(), work_);
    std::atomic<bool> reached{false};
    work_->on_round = [&](int round, int) -> std::optional<WorkFailure> {
      if (round == rounds) {
        reached = true;
        while (!server.runner().draining()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return std::nullopt;
    };
    const std::string name = server.Create(spec).name();
    server.Start();
    while (!reached) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    server.runner().Drain();
    work_->on_round = nullptr;
    return name;
  }
  v1::BenchmarkJob Resume(const std::string& name) {
    JobServer server(dir_.path(), work_);
    server.Start();
    return server.WaitForEnd(name);
  }

  // Runs a job of noisy rounds of 5 device seconds with so many of them allowed; returns it and its report.
  std::pair<v1::BenchmarkJob, nlohmann::json> RunWithin(double max_device_seconds) {
    work_->noise = 0.2;
    work_->device_seconds = 5;
    auto spec = TestSpec();
    spec.set_max_device_seconds(max_device_seconds);
    spec.set_seed(2026);  // Not one by whose noise a look would decide.
    JobServer server(dir_.path(), work_);
    const std::string name = server.Create(spec).name();
    server.Start();
    auto job = server.WaitForEnd(name);
    return {std::move(job), nlohmann::json::parse(server.Report(name)["report.json"])};
  }

  const TempDir dir_;
  const std::shared_ptr<FakeWork> work_ = std::make_shared<FakeWork>();
};

TEST_F(JobRestartTest, SamplesOfTwoEnvironmentsAreNotMixed) {
  const std::string name = RunUntil(3);
  work_->facts["driver_version"] = "590.48";
  const auto job = Resume(name);
  EXPECT_EQ(job.verdict(), "FAILED");
  EXPECT_EQ(job.reason(), "ENVIRONMENT_CHANGED");
  EXPECT_EQ(job.failure_cause(), "infrastructure");
  EXPECT_THAT(job.detail(), HasSubstr("driver_version"));
  EXPECT_EQ(job.rounds_done(), 3);
  EXPECT_EQ(work_->Calls("round 3"), 1);  // Before the drain: none since.
  JobServer server(dir_.path(), work_);
  EXPECT_THAT(server.Report(name)["report.json"], HasSubstr("590.48"));
}

TEST_F(JobRestartTest, LoadAndTemperatureMayChange) {
  const std::string name = RunUntil(3);
  work_->facts["cpu_load_average"] = "7.5";
  EXPECT_EQ(Resume(name).verdict(), "EQUIVALENT");
}

TEST_F(JobRestartTest, BeforeAnythingWasMeasuredTheEnvironmentIsTakenAnew) {
  std::string name;
  {
    JobServer server(dir_.path(), work_);
    std::atomic<bool> reached{false};
    work_->on_contract = [&](int) -> std::optional<WorkFailure> {
      reached = true;
      while (!server.runner().draining()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return WorkFailure{.cause = "infrastructure", .reason = "KILLED", .detail = "with the server"};
    };
    name = server.Create(TestSpec()).name();
    server.Start();
    while (!reached) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    server.runner().Drain();
  }
  work_->on_contract = nullptr;
  work_->facts["driver_version"] = "590.48";
  EXPECT_EQ(Resume(name).verdict(), "EQUIVALENT");
  JobServer server(dir_.path(), work_);
  EXPECT_THAT(*server.store().Document(name, "environment"), HasSubstr("590.48"));
  EXPECT_EQ(*server.store().Document(name, "environment_after_restart"), "");
}

TEST_F(JobRestartTest, AnEnvironmentThatCannotBeReadIsTriedAgainAndThenEndsTheJob) {
  const std::string name = RunUntil(3);
  const int before = work_->Calls("environment");
  work_->on_environment = [before](int attempt) -> std::optional<WorkFailure> {
    if (attempt >= before + 2) return std::nullopt;
    return WorkFailure{.cause = "infrastructure", .reason = "SPAWN_FAILED", .detail = "no more processes"};
  };
  EXPECT_EQ(Resume(name).verdict(), "EQUIVALENT");
  EXPECT_EQ(work_->Calls("environment"), before + 3);

  work_->on_environment = [](int) -> std::optional<WorkFailure> {
    return WorkFailure{.cause = "infrastructure", .reason = "SPAWN_FAILED", .detail = "no more processes"};
  };
  JobServer server(dir_.path(), work_);
  const std::string other = server.Create(TestSpec()).name();
  server.Start();
  const auto job = server.WaitForEnd(other);
  EXPECT_EQ(job.verdict(), "FAILED");
  EXPECT_EQ(job.reason(), "INFRASTRUCTURE_SPAWN_FAILED");
  EXPECT_EQ(work_->Calls("contract"), 1);
}

TEST_F(JobRestartTest, JobsOfADeviceThatIsGoneEndAtTheStart) {
  auto spec = TestSpec();
  spec.mutable_target()->set_device("cuda:0");  // The fixture's runner has the CPU alone.
  std::string queued;
  std::string running;
  {
    JobServer server(dir_.path(), work_);
    queued = server.Create(spec).name();
    running = server.Create(spec).name();
    JobChange change{.job = server.Get(running)};
    change.job.set_state(v1::BenchmarkJob::RUNNING);
    ASSERT_TRUE(server.store().Apply(change).ok());
  }
  JobServer server(dir_.path(), work_);
  server.Start();
  for (const std::string& name : {queued, running}) {
    const auto job = server.Get(name);  // No waiting: it has ended when Start returns.
    EXPECT_EQ(job.state(), v1::BenchmarkJob::DONE);
    EXPECT_EQ(job.verdict(), "FAILED");
    EXPECT_EQ(job.reason(), "DEVICE_GONE");
    EXPECT_EQ(job.failure_cause(), "infrastructure");
    EXPECT_THAT(job.detail(), HasSubstr("cuda:0"));
    EXPECT_GT(job.end_time_unix_ms(), 0);
    EXPECT_EQ(server.store().EventsAfter(name, 0, 100)->back().job().verdict(), "FAILED");
    EXPECT_EQ(server.Report(name).count("report.json"), 1U);
  }
  EXPECT_EQ(server.WaitForEnd(server.Create(TestSpec()).name()).verdict(), "EQUIVALENT");  // The CPU's run on.
}

TEST_F(JobRestartTest, AStoreThatTakesNoWritesLeavesAJobOfADeviceThatIsGoneToTheNextStart) {
  auto spec = TestSpec();
  spec.mutable_target()->set_device("cuda:0");
  std::string name;
  {
    JobServer server(dir_.path(), work_);
    name = server.Create(spec).name();
    SQLite::Database other(dir_.path() + "/jobs.db", SQLite::OPEN_READWRITE);
    SQLite::Transaction writing(other, SQLite::TransactionBehavior::IMMEDIATE);  // Keeps every other writer out.
    server.Start();
    EXPECT_EQ(server.Get(name).state(), v1::BenchmarkJob::QUEUED);
  }
  JobServer server(dir_.path(), work_);
  server.Start();
  EXPECT_EQ(server.Get(name).reason(), "DEVICE_GONE");
}

TEST_F(JobRestartTest, AJobThatUsesMoreThanItsBudgetAndAQuarterEndsUndecided) {
  const auto [job, report] = RunWithin(10);
  EXPECT_EQ(job.verdict(), "INCONCLUSIVE");
  EXPECT_EQ(job.reason(), "BUDGET");
  EXPECT_EQ(job.failure_cause(), "");
  EXPECT_THAT(job.detail(), HasSubstr("15.0 device seconds, max_device_seconds is 10"));
  EXPECT_THAT(job.detail(), HasSubstr("Next step: raise max_device_seconds"));
  EXPECT_THAT(job.detail(), Not(HasSubstr("collect on")));
  EXPECT_EQ(job.rounds_done(), 3);  // 10 is within 12.5, 15 is not.
  EXPECT_FALSE(job.non_inferior());
  EXPECT_EQ(work_->Calls("round 3"), 0);
  EXPECT_EQ(report.at("reason"), "BUDGET");
  EXPECT_TRUE(report.at("looks").empty());
}

TEST_F(JobRestartTest, AfterALookTheBudgetLeavesWhatThatLookSaid) {
  const auto [job, report] = RunWithin(30);
  EXPECT_EQ(job.reason(), "BUDGET");
  EXPECT_THAT(job.detail(), HasSubstr("Next step: raise max_device_seconds, or take fewer or smaller shapes, so that "
                                      "10 rounds fit, the last look"));
  EXPECT_EQ(job.rounds_done(), 8);  // 37.5 allowed: 40 seconds are too many. Looks are at 6 and 10.
  EXPECT_EQ(report.at("looks").size(), 1U);
}

TEST_F(JobRestartTest, AJobThatIsDecidedInTimeIsNotTouchedByItsBudget) {
  work_->gain = 0.03;
  work_->device_seconds = 5;
  auto spec = TestSpec();
  spec.set_max_device_seconds(18);  // 22.5 with the quarter: passed by the fifth round, whose look decides.
  spec.mutable_procedure()->clear_looks();
  spec.mutable_procedure()->add_looks(5);
  spec.mutable_procedure()->add_looks(10);
  JobServer server(dir_.path(), work_);
  const std::string name = server.Create(spec).name();
  server.Start();
  const auto job = server.WaitForEnd(name);
  EXPECT_EQ(job.verdict(), "IMPROVED");
  EXPECT_EQ(job.rounds_done(), 5);
}

TEST_F(JobRestartTest, WhatWasUsedBeforeARestartCounts) {
  work_->noise = 0.2;
  work_->device_seconds = 5;
  auto spec = TestSpec();
  spec.set_max_device_seconds(10);
  EXPECT_EQ(Resume(RunUntil(2, spec)).rounds_done(), 3);
}

}  // namespace
}  // namespace keval::server
