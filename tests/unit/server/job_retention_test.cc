#include "server/job_retention.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include <SQLiteCpp/SQLiteCpp.h>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "tests/support/temp_dir.h"

namespace keval::server {
namespace {

using keval::testing::TempDir;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

class JobRetentionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = JobStore::Open(dir_.path());
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
  }

  // A job with a round, a loss, events and a document, which ended `days` before kNow; negative: it runs.
  std::string Add(int days, v1::BenchmarkJob::State end = v1::BenchmarkJob::DONE, const std::string& request_id = "") {
    v1::BenchmarkJob job;
    job.set_name("jobs/" + RandomHex128());
    job.set_request_id(request_id);
    job.set_state(v1::BenchmarkJob::QUEUED);
    job.mutable_spec()->mutable_target()->set_device("cpu");
    EXPECT_TRUE(store_->Create("ann", job, "digest", 1000).ok());
    job.set_state(v1::BenchmarkJob::RUNNING);
    JobChange change{.job = job};
    change.round = StoredRound{0, "samples", "{}"};
    change.loss = StoredLoss{"round", 0, "base", "CRASHED", "signal 11", ""};
    change.documents = {{"contract", "[]"}};
    change.calibration = {{"device", 0.25}};
    change.events.emplace_back().mutable_round_done()->set_round(1);
    if (days >= 0) {
      change.job.set_state(end);
      change.job.set_end_time_unix_ms(absl::ToUnixMillis(kNow - absl::Hours(24 * days)));
    }
    EXPECT_TRUE(store_->Apply(change).ok());
    return job.name();
  }
  bool Has(const std::string& name) const { return store_->Get(name).ok(); }

  std::int64_t Rows(const std::string& table) const {
    SQLite::Database database(dir_.path() + "/jobs.db");
    return database.execAndGet(absl::StrCat("SELECT COUNT(*) FROM ", table)).getInt64();
  }

  const TempDir dir_;
  std::unique_ptr<JobStore> store_;
};

TEST_F(JobRetentionTest, OldJobsGoWithAllTheyLeftAndTheOthersStay) {
  const std::string old_done = Add(91);
  const std::string old_cancelled = Add(200, v1::BenchmarkJob::CANCELLED);
  const std::string recent = Add(89);
  const std::string running = Add(-1);
  JobRetention retention(store_.get(), {.days = 90});
  retention.Tidy(kNow);
  EXPECT_FALSE(Has(old_done));
  EXPECT_FALSE(Has(old_cancelled));
  EXPECT_TRUE(Has(recent));
  EXPECT_TRUE(Has(running));
  for (const char* table : {"jobs", "rounds", "losses", "documents"}) EXPECT_EQ(Rows(table), 2) << table;
  EXPECT_EQ(Rows("events"), 4);                          // Two of each that stayed.
  EXPECT_EQ(store_->Calibration("device")->size(), 4U);  // What a device's noise was stays known.
  EXPECT_EQ(store_->Get(old_done).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store_->Rounds(old_done)->empty());
}

TEST_F(JobRetentionTest, TooManyJobsLoseTheOldestThatHaveEnded) {
  const std::string running = Add(-1);
  std::vector<std::string> ended;
  for (int i = 0; i < 5; ++i) ended.push_back(Add(5 - i));
  JobRetention retention(store_.get(), {.max_jobs = 4});
  retention.Tidy(kNow);
  EXPECT_TRUE(Has(running));
  EXPECT_FALSE(Has(ended[0]));
  EXPECT_FALSE(Has(ended[1]));
  for (int i = 2; i < 5; ++i) EXPECT_TRUE(Has(ended[static_cast<std::size_t>(i)])) << i;
}

TEST_F(JobRetentionTest, JobsThatHaveNotEndedAreNeverTooMany) {
  const std::vector<std::string> running = {Add(-1), Add(-1), Add(-1)};
  const std::string ended = Add(1);
  JobRetention retention(store_.get(), {.max_jobs = 1});
  retention.Tidy(kNow);
  for (const std::string& name : running) EXPECT_TRUE(Has(name));
  EXPECT_FALSE(Has(ended));
  ASSERT_TRUE(store_->DeleteEnded(running).ok());  // Nor by their names.
  for (const std::string& name : running) EXPECT_TRUE(Has(name));
}

TEST_F(JobRetentionTest, WithoutLimitsEverythingStays) {
  const std::string old = Add(10000);
  JobRetention retention(store_.get(), {});
  retention.Tidy(kNow);
  EXPECT_TRUE(Has(old));
}

TEST_F(JobRetentionTest, LooksOnceADayAndDeletesAFewAtATime) {
  for (int i = 0; i < 120; ++i) Add(100);
  JobRetention retention(store_.get(), {.days = 90});
  retention.Tidy(kNow);
  EXPECT_EQ(Rows("jobs"), 70);
  retention.Tidy(kNow);
  retention.Tidy(kNow);
  EXPECT_EQ(Rows("jobs"), 0);
  const std::string late = Add(100);
  retention.Tidy(kNow + absl::Hours(23));
  EXPECT_TRUE(Has(late));
  retention.Tidy(kNow + absl::Hours(24));
  EXPECT_FALSE(Has(late));
}

TEST_F(JobRetentionTest, AStoreThatCannotBeWrittenIsTriedAgainAfterAnHour) {
  const std::string old = Add(100);
  JobRetention retention(store_.get(), {.days = 90});
  {
    SQLite::Database other(dir_.path() + "/jobs.db", SQLite::OPEN_READWRITE);
    SQLite::Transaction writing(other, SQLite::TransactionBehavior::IMMEDIATE);  // Keeps every other writer out.
    retention.Tidy(kNow);
    EXPECT_TRUE(Has(old));
  }
  retention.Tidy(kNow + absl::Minutes(59));
  EXPECT_TRUE(Has(old));
  retention.Tidy(kNow + absl::Minutes(60));
  EXPECT_FALSE(Has(old));
}

TEST_F(JobRetentionTest, ADeletedJobsRequestIdIsFreeAgain) {
  const std::string old = Add(100, v1::BenchmarkJob::DONE, "nightly");
  JobRetention retention(store_.get(), {.days = 90});
  EXPECT_TRUE(store_->FindRequest("ann", "nightly", "digest")->has_value());
  retention.Tidy(kNow);
  EXPECT_FALSE(store_->FindRequest("ann", "nightly", "digest")->has_value());
  EXPECT_TRUE(Has(Add(1, v1::BenchmarkJob::DONE, "nightly")));
}

}  // namespace
}  // namespace keval::server
