#include "server/job_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <SQLiteCpp/SQLiteCpp.h>

#include "base/field_error.h"
#include "base/sha256.h"
#include "tests/support/temp_dir.h"

namespace keval::server {
namespace {

using keval::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::Not;

std::unique_ptr<JobStore> OpenStore(const std::string& dir) {
  auto store = JobStore::Open(dir);
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

v1::BenchmarkJob NewJob(const std::string& request_id = "") {
  v1::BenchmarkJob job;
  job.set_name("jobs/" + RandomHex128());
  job.set_request_id(request_id);
  job.set_state(v1::BenchmarkJob::QUEUED);
  job.mutable_spec()->mutable_target()->set_device("cpu");
  return job;
}

v1::BenchmarkJob CreateJob(JobStore* store, const std::string& request_id = "", const std::string& principal = "ann") {
  const auto job = store->Create(principal, NewJob(request_id), "digest", 100);
  EXPECT_TRUE(job.ok()) << job.status();
  return *job;
}

JobChange RoundChange(v1::BenchmarkJob job, int round, std::size_t bytes = 10) {
  job.set_state(v1::BenchmarkJob::RUNNING);
  job.set_rounds_done(round + 1);
  JobChange change{.job = job};
  change.round = StoredRound{round, std::string(bytes, 's'), "{}"};
  change.events.emplace_back().mutable_round_done()->set_round(round + 1);
  return change;
}

TEST(JobStoreTest, KeepsEverythingAcrossAReopen) {
  const TempDir dir;
  v1::BenchmarkJob job;
  {
    auto store = OpenStore(dir.path());
    job = CreateJob(store.get());
    JobChange change = RoundChange(job, 0, 3'000'000);
    change.idle_restarts = 2;
    change.stopped_clean = true;
    change.loss = StoredLoss{"round", 0, "candidate", "CRASHED", "signal 11", "csv"};
    change.documents = {{"contract", "[]"}};
    change.calibration = {{"gpu", 0.001}, {"gpu", -0.002}, {"other", 0.5}};
    ASSERT_TRUE(store->Apply(change).ok());
  }
  auto store = OpenStore(dir.path());
  const auto stored = store->Get(job.name());
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(stored->principal, "ann");
  EXPECT_EQ(stored->job.rounds_done(), 1);
  EXPECT_EQ(stored->idle_restarts, 2);
  EXPECT_TRUE(stored->stopped_clean);
  const auto rounds = *store->Rounds(job.name());
  ASSERT_EQ(rounds.size(), 1U);
  EXPECT_EQ(rounds[0].samples.size(), 3'000'000U);
  const auto losses = *store->Losses(job.name());
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].reason, "CRASHED");
  EXPECT_EQ(losses[0].samples, "csv");
  EXPECT_EQ(*store->Document(job.name(), "contract"), "[]");
  EXPECT_EQ(*store->Document(job.name(), "none"), "");
  EXPECT_THAT(*store->Calibration("gpu"), ::testing::ElementsAre(0.001, -0.002));
  const auto events = *store->EventsAfter(job.name(), 0, 100);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].sequence(), 1);
  EXPECT_EQ(events[0].job().state(), v1::BenchmarkJob::QUEUED);
  EXPECT_EQ(events[1].sequence(), 2);
  EXPECT_EQ(events[1].round_done().round(), 1);
  EXPECT_GT(events[1].time_unix_ms(), 0);
  EXPECT_EQ(store->EventsAfter(job.name(), 1, 100)->size(), 1U);
}

TEST(JobStoreTest, SyncsEveryCommitToTheDisk) {
  const TempDir dir;
  auto store = OpenStore(dir.path());
  CreateJob(store.get());
  SQLite::Database other(dir.path() + "/jobs.db", SQLite::OPEN_READONLY);
  EXPECT_EQ(other.execAndGet("PRAGMA journal_mode").getString(), "wal");
  struct stat info {};
  ASSERT_EQ(stat((dir.path() + "/jobs.db").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 077U, 0U);  // Nobody else's business.
}

TEST(JobStoreTest, ARequestIdMeansOneJob) {
  const TempDir dir;
  auto store = OpenStore(dir.path());
  const auto first = CreateJob(store.get(), "r1");
  EXPECT_EQ(CreateJob(store.get(), "r1").name(), first.name());
  EXPECT_EQ((*store->FindRequest("ann", "r1", "digest"))->name(), first.name());
  EXPECT_FALSE(store->FindRequest("ann", "r2", "digest")->has_value());
  EXPECT_EQ(store->EventsAfter(first.name(), 0, 10)->size(), 1U);  // No second event.
  const auto other_spec = store->Create("ann", NewJob("r1"), "another digest", 100);
  EXPECT_EQ(other_spec.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetFieldViolation(other_spec.status())->field, "request_id");
  EXPECT_NE(CreateJob(store.get(), "r1", "bob").name(), first.name());  // Another principal's ids are his own.
  EXPECT_NE(CreateJob(store.get()).name(), CreateJob(store.get()).name());
}

TEST(JobStoreTest, TheQueueIsBounded) {
  const TempDir dir;
  auto store = OpenStore(dir.path());
  ASSERT_TRUE(store->Create("ann", NewJob("r1"), "digest", 1).ok());
  const auto refused = store->Create("ann", NewJob(), "digest", 1);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(GetRetryDelayMs(refused.status()).has_value());
  EXPECT_TRUE(store->Create("ann", NewJob("r1"), "digest", 1).ok());  // It is there already.
}

TEST(JobStoreTest, TakesARunningJobBeforeTheOldestQueuedOne) {
  const TempDir dir;
  auto store = OpenStore(dir.path());
  EXPECT_FALSE(store->NextJob("cpu")->has_value());
  const auto first = CreateJob(store.get());
  const auto second = CreateJob(store.get());
  EXPECT_EQ((*store->NextJob("cpu"))->job.name(), first.name());
  EXPECT_FALSE(store->NextJob("cuda:0")->has_value());
  ASSERT_TRUE(store->Apply(RoundChange(second, 0)).ok());
  EXPECT_EQ((*store->NextJob("cpu"))->job.name(), second.name());
  EXPECT_EQ(store->JobsInState(v1::BenchmarkJob::RUNNING)->size(), 1U);
  EXPECT_EQ(*store->CountInState(v1::BenchmarkJob::QUEUED), 1);
}

TEST(JobStoreTest, ListsAPrincipalsOwnJobsNewestFirst) {
  const TempDir dir;
  auto store = OpenStore(dir.path());
  const auto first = CreateJob(store.get());
  CreateJob(store.get(), "", "bob");
  const auto third = CreateJob(store.get());
  const auto page = *store->List("ann", 0, 1);
  ASSERT_EQ(page.size(), 1U);
  EXPECT_EQ(page[0].second.name(), third.name());
  const auto rest = *store->List("ann", page[0].first, 10);
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest[0].second.name(), first.name());
}

TEST(JobStoreTest, NothingChangesAJobThatHasEnded) {
  const TempDir dir;
  auto store = OpenStore(dir.path());
  const auto job = CreateJob(store.get());
  const auto cancelled = store->Cancel(job.name());
  ASSERT_TRUE(cancelled.ok());
  EXPECT_EQ(cancelled->state(), v1::BenchmarkJob::CANCELLED);
  EXPECT_GT(cancelled->end_time_unix_ms(), 0);
  EXPECT_EQ(store->Apply(RoundChange(job, 0)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(store->Rounds(job.name())->empty());
  EXPECT_EQ(store->Cancel(job.name())->end_time_unix_ms(), cancelled->end_time_unix_ms());
  EXPECT_EQ(store->EventsAfter(job.name(), 0, 10)->size(), 2U);  // Queued, cancelled; no third.
  EXPECT_EQ(store->Cancel("jobs/none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store->Get("jobs/none").status().code(), absl::StatusCode::kNotFound);
}

TEST(JobStoreTest, ARoundCannotBeWrittenTwiceAndLeavesNothingHalfDone) {
  const TempDir dir;
  auto store = OpenStore(dir.path());
  const auto job = CreateJob(store.get());
  ASSERT_TRUE(store->Apply(RoundChange(job, 0)).ok());
  JobChange again = RoundChange(job, 0);
  again.job.set_rounds_done(99);
  EXPECT_EQ(store->Apply(again).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(store->Get(job.name())->job.rounds_done(), 1);
  EXPECT_EQ(store->EventsAfter(job.name(), 0, 10)->size(), 2U);
}

TEST(JobStoreTest, AFullDiskRefusesWritesServesReadsAndRecovers) {
  const TempDir dir;
  auto store = OpenStore(dir.path());
  const auto job = CreateJob(store.get());
  ASSERT_TRUE(store->LimitPagesForTest(1).ok());  // SQLite takes it as the present size.
  const JobChange big = RoundChange(job, 0, 1'000'000);
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = store->Apply(big);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(std::string(status.message()), "job store can't be written");
    EXPECT_TRUE(GetRetryDelayMs(status).has_value());
    EXPECT_EQ(store->Get(job.name())->job.rounds_done(), 0);
    EXPECT_EQ(store->EventsAfter(job.name(), 0, 10)->size(), 1U);
  }
  ASSERT_TRUE(store->LimitPagesForTest(0).ok());
  EXPECT_TRUE(store->Apply(big).ok());
  EXPECT_EQ(store->Rounds(job.name())->size(), 1U);
}

TEST(JobStoreTest, ASecondServerOnTheDirectoryIsRefused) {
  const TempDir dir;
  auto store = OpenStore(dir.path());
  const auto second = JobStore::Open(dir.path());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(dir.path()));
  store.reset();
  EXPECT_TRUE(JobStore::Open(dir.path()).ok());
}

TEST(JobStoreTest, ASecondProcessIsRefusedAndAKilledOneLeavesNoLock) {
  const TempDir dir;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto store = JobStore::Open(dir.path());
    const char byte = store.ok() ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  EXPECT_EQ(JobStore::Open(dir.path()).status().code(), absl::StatusCode::kFailedPrecondition);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(JobStore::Open(dir.path()).ok());
  close(ready[0]);
  close(ready[1]);
}

TEST(JobStoreTest, ANewerSchemaIsRefused) {
  const TempDir dir;
  OpenStore(dir.path()).reset();
  { SQLite::Database(dir.path() + "/jobs.db", SQLite::OPEN_READWRITE).exec("PRAGMA user_version = 99"); }
  const auto store = JobStore::Open(dir.path());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("schema version 99"));
}

TEST(JobStoreTest, ADamagedOrForeignFileIsAClearError) {
  const TempDir dir;
  { std::ofstream(dir.path() + "/jobs.db") << std::string(8192, 'x'); }
  const auto damaged = JobStore::Open(dir.path());
  EXPECT_EQ(damaged.status().code(), absl::StatusCode::kDataLoss) << damaged.status();
  EXPECT_THAT(std::string(damaged.status().message()), HasSubstr("jobs.db"));
  const TempDir foreign;
  {
    SQLite::Database(foreign.path() + "/jobs.db", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE)
        .exec("CREATE TABLE recipes (name TEXT)");
  }
  EXPECT_EQ(JobStore::Open(foreign.path()).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(JobStore::Open("/proc/no/such/place").status().code(), absl::StatusCode::kUnavailable);
}

TEST(JobStoreTest, ACommitWakesWhoWaitsForOne) {
  const TempDir dir;
  auto store = OpenStore(dir.path());
  const std::uint64_t seen = store->commits();
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CreateJob(store.get());
  });
  store->WaitForCommit(seen, std::chrono::steady_clock::now() + std::chrono::seconds(20));
  EXPECT_GT(store->commits(), seen);
  writer.join();
  const auto start = std::chrono::steady_clock::now();
  store->WaitForCommit(store->commits(), start + std::chrono::milliseconds(20));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(19));
}

TEST(JobStoreTest, ManyThreadsShareIt) {
  const TempDir dir;
  auto store = OpenStore(dir.path());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        const auto job = CreateJob(store.get());
        EXPECT_TRUE(store->Apply(RoundChange(job, 0)).ok());
        EXPECT_TRUE(store->List("ann", 0, 100).ok());
        EXPECT_EQ(store->EventsAfter(job.name(), 0, 10)->size(), 2U);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(store->List("ann", 0, 100)->size(), 40U);
}

}  // namespace
}  // namespace keval::server
