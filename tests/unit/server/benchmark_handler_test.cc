#include "server/benchmark_handler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/field_error.h"
#include "base/sha256.h"
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

absl::Status Always() { return absl::OkStatus(); }

class BenchmarkHandlerTest : public ::testing::Test {
 protected:
  std::vector<v1::JobEvent> Watch(JobServer* server, const std::string& name, std::int64_t after,
                                  absl::Status* status) {
    v1::WatchJobRequest request;
    request.set_name(name);
    request.set_after_sequence(after);
    std::vector<v1::JobEvent> events;
    *status = server->handler().Watch(
        "ann", request,
        [&](const v1::JobEvent& event) {
          events.push_back(event);
          return true;
        },
        Always);
    return events;
  }

  // Of one whose noise lets no look decide.
  std::vector<v1::JobEvent> EventsOfAnUndecidedJob() {
    work_->noise = 0.2;
    JobServer server(dir_.path(), work_);
    const std::string name = server.Create(TestSpec()).name();
    server.Start();
    server.WaitForEnd(name);
    absl::Status status;
    std::vector<v1::JobEvent> events = Watch(&server, name, 0, &status);
    EXPECT_TRUE(status.ok()) << status;
    return events;
  }

  const TempDir dir_;
  const std::shared_ptr<FakeWork> work_ = std::make_shared<FakeWork>();
};

TEST_F(BenchmarkHandlerTest, CreateAnswersWithADurableJob) {
  JobServer server(dir_.path(), work_);
  const auto job = server.Create(TestSpec(), "request 1");
  EXPECT_THAT(job.name(), ::testing::MatchesRegex("jobs/[0-9a-f]{32}"));
  EXPECT_EQ(job.state(), v1::BenchmarkJob::QUEUED);
  EXPECT_EQ(job.spec().target().device(), "cpu");
  EXPECT_NE(job.spec().seed(), 0U);
  EXPECT_EQ(job.spec_digest().size(), 64U);
  EXPECT_EQ(job.rounds_planned(), 10);
  EXPECT_EQ(server.Get(job.name()).spec_digest(), job.spec_digest());
}

TEST_F(BenchmarkHandlerTest, KeepsAGivenSeedToTheLastDigit) {
  JobServer server(dir_.path(), work_);
  auto spec = TestSpec();
  spec.set_seed(9007199254740993);
  EXPECT_EQ(server.Create(spec).spec().seed(), 9007199254740993U);
}

TEST_F(BenchmarkHandlerTest, ARequestIdIsOneJobAcrossRestartsAndDrains) {
  std::string name;
  {
    JobServer server(dir_.path(), work_);
    name = server.Create(TestSpec(), "r").name();
    EXPECT_EQ(server.Create(TestSpec(), "r").name(), name);
    auto other = TestSpec();
    other.set_seed(5);
    v1::CreateJobRequest request;
    *request.mutable_spec() = other;
    request.set_request_id("r");
    const auto refused = server.handler().Create("ann", request);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(GetFieldViolation(refused.status())->field, "request_id");
  }
  JobServer server(dir_.path(), work_);
  server.Start();
  server.WaitForEnd(name);
  server.runner().Drain();
  EXPECT_EQ(server.Create(TestSpec(), "r").name(), name);
  v1::CreateJobRequest request;
  *request.mutable_spec() = TestSpec();
  const auto refused = server.handler().Create("ann", request);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(GetRetryDelayMs(refused.status()).has_value());
}

TEST_F(BenchmarkHandlerTest, RefusesABadRequestId) {
  JobServer server(dir_.path(), work_);
  for (const std::string& id : {std::string(129, 'x'), std::string("tab\t"), std::string("\xFF")}) {
    v1::CreateJobRequest request;
    *request.mutable_spec() = TestSpec();
    request.set_request_id(id);
    const auto refused = server.handler().Create("ann", request);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(GetFieldViolation(refused.status())->field, "request_id");
  }
}

TEST_F(BenchmarkHandlerTest, ValidateOnlyAnswersWithThePlanAndNoJob) {
  JobServer server(dir_.path(), work_);
  v1::CreateJobRequest request;
  *request.mutable_spec() = TestSpec();
  request.set_validate_only(true);
  const auto job = server.handler().Create("ann", request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "");
  EXPECT_EQ(job->plan().series_size(), 3);
  EXPECT_EQ(job->plan().series(0).delta(), 0.01);
  EXPECT_TRUE(server.handler().List("ann", {})->jobs().empty());
  request.mutable_spec()->mutable_primaries(0)->set_vocab_size(0);
  EXPECT_EQ(GetFieldViolation(server.handler().Create("ann", request).status())->field, "primaries[0].vocab_size");
}

TEST_F(BenchmarkHandlerTest, SomeoneElsesJobIsNotFoundEverywhere) {
  JobServer server(dir_.path(), work_);
  const std::string name = server.Create(TestSpec()).name();
  server.Start();
  server.WaitForEnd(name);
  for (const auto& [principal, job] : {std::pair<std::string, std::string>{"bob", name}, {"ann", "jobs/none"}}) {
    v1::GetJobRequest get;
    get.set_name(job);
    EXPECT_EQ(server.handler().Get(principal, get).status().code(), absl::StatusCode::kNotFound);
    v1::CancelJobRequest cancel;
    cancel.set_name(job);
    EXPECT_EQ(server.handler().Cancel(principal, cancel).status().code(), absl::StatusCode::kNotFound);
    v1::WatchJobRequest watch;
    watch.set_name(job);
    EXPECT_EQ(server.handler()
                  .Watch(
                      principal, watch, [](const v1::JobEvent&) { return true; }, Always)
                  .code(),
              absl::StatusCode::kNotFound);
    v1::GetReportRequest report;
    report.set_name(job);
    EXPECT_EQ(server.handler().GetReport(principal, report, [](const v1::GetReportResponse&) { return true; }).code(),
              absl::StatusCode::kNotFound);
  }
  EXPECT_TRUE(server.handler().List("bob", {})->jobs().empty());
  EXPECT_EQ(server.handler().List("ann", {})->jobs_size(), 1);
}

TEST_F(BenchmarkHandlerTest, ListPagesThroughEveryJobOnce) {
  JobServer server(dir_.path(), work_);
  std::set<std::string> created;
  for (int i = 0; i < 5; ++i) created.insert(server.Create(TestSpec()).name());
  std::set<std::string> listed;
  v1::ListJobsRequest request;
  request.set_page_size(2);
  int pages = 0;
  do {
    const auto page = server.handler().List("ann", request);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const auto& job : page->jobs()) EXPECT_TRUE(listed.insert(job.name()).second);
    request.set_page_token(page->next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(listed, created);
  EXPECT_EQ(pages, 3);
  request.set_page_size(1001);
  EXPECT_EQ(GetFieldViolation(server.handler().List("ann", request).status())->field, "page_size");
  request.set_page_size(-1);
  EXPECT_EQ(GetFieldViolation(server.handler().List("ann", request).status())->field, "page_size");
  request.set_page_size(1);
  request.set_page_token("x");
  EXPECT_EQ(GetFieldViolation(server.handler().List("ann", request).status())->field, "page_token");
}

TEST_F(BenchmarkHandlerTest, ListTakesOneSpecsJobsAlone) {
  JobServer server(dir_.path(), work_);
  auto other = TestSpec();
  other.set_display_name("another");
  std::vector<std::string> created;
  std::string digest;
  for (int i = 0; i < 3; ++i) {
    const auto job = server.Create(TestSpec());
    created.insert(created.begin(), job.name());
    digest = job.spec_digest();  // The seed that the server draws is no part of it.
    server.Create(other);
  }
  v1::ListJobsRequest request;
  request.set_spec_digest(digest);
  request.set_page_size(2);
  std::vector<std::string> listed;
  do {
    const auto page = server.handler().List("ann", request);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const auto& job : page->jobs()) listed.push_back(job.name());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(listed, created);
  request.clear_page_token();
  request.set_spec_digest("none of them");
  EXPECT_TRUE(server.handler().List("ann", request)->jobs().empty());
}

TEST_F(BenchmarkHandlerTest, AWatchGetsEveryEventOnceAndEndsWithTheJob) {
  work_->gain = 0.03;
  work_->on_round = [](int round, int attempt) -> std::optional<WorkFailure> {
    if (round == 2 && attempt == 0) return WorkFailure{.cause = "candidate", .reason = "HUNG", .detail = "no answer"};
    return std::nullopt;
  };
  JobServer server(dir_.path(), work_);
  const std::string name = server.Create(TestSpec()).name();
  absl::Status live_status;
  std::vector<v1::JobEvent> live;
  std::thread watcher([&] { live = Watch(&server, name, 0, &live_status); });
  server.Start();
  watcher.join();
  EXPECT_TRUE(live_status.ok()) << live_status;
  std::vector<std::string> kinds;
  for (std::size_t i = 0; i < live.size(); ++i) {
    EXPECT_EQ(live[i].sequence(), static_cast<std::int64_t>(i) + 1);
    EXPECT_GT(live[i].time_unix_ms(), 0);
    switch (live[i].event_case()) {
      case v1::JobEvent::kJob:
        kinds.push_back(v1::BenchmarkJob::State_Name(live[i].job().state()) +
                        (live[i].job().has_plan() ? "+plan" : ""));
        break;
      case v1::JobEvent::kRoundDone:
        kinds.push_back("round " + std::to_string(live[i].round_done().round()));
        break;
      case v1::JobEvent::kRoundDiscarded:
        kinds.push_back("discarded " + live[i].round_discarded().cause() + " " + live[i].round_discarded().reason());
        break;
      case v1::JobEvent::kLook:
        kinds.push_back("look " + std::to_string(live[i].look().rounds()) + " " + live[i].look().candidate_verdict());
        break;
      default:
        kinds.push_back("?");
    }
  }
  EXPECT_THAT(kinds, ::testing::ElementsAre("QUEUED", "RUNNING", "RUNNING+plan", "round 1", "round 2",
                                            "discarded candidate HUNG", "round 3", "round 4", "round 5", "round 6",
                                            "look 6 IMPROVED", "DONE+plan"));
  const v1::JobEvent& round = live[3];
  EXPECT_EQ(round.round_done().differences_size(), 3);
  EXPECT_NEAR(round.round_done().differences().at("64x8x100/float32/bias"), 0.03, 0.005);
  EXPECT_EQ(live[10].look().series_size(), 3);
  EXPECT_EQ(live[10].look().next_look(), 0);
  EXPECT_EQ(live.back().job().verdict(), "IMPROVED");

  absl::Status status;  // Again from the store, and from the middle.
  EXPECT_EQ(Watch(&server, name, 0, &status).size(), live.size());
  EXPECT_TRUE(status.ok());
  const auto rest = Watch(&server, name, 5, &status);
  EXPECT_EQ(rest.size(), live.size() - 5);
  EXPECT_EQ(rest.front().sequence(), 6);
  EXPECT_TRUE(Watch(&server, name, 1000, &status).empty());
  EXPECT_TRUE(status.ok());
  Watch(&server, name, -1, &status);
  EXPECT_EQ(GetFieldViolation(status)->field, "after_sequence");
}

TEST_F(BenchmarkHandlerTest, ALookThatDecidesNothingSaysWhenTheNextOneIs) {
  std::vector<v1::Look> looks;
  for (const auto& event : EventsOfAnUndecidedJob()) {
    if (event.has_look()) looks.push_back(event.look());
  }
  ASSERT_EQ(looks.size(), 2U);
  EXPECT_EQ(looks[0].rounds(), 6);
  EXPECT_EQ(looks[0].next_look(), 10);
  EXPECT_NE(looks[0].rounds_needed(), 0);
  EXPECT_EQ(looks[1].next_look(), 0);
}

TEST_F(BenchmarkHandlerTest, EveryRoundTellsTheIntervalsSoFarAndTheNextLook) {
  std::vector<v1::RoundDone> rounds;
  v1::Look first_look;
  for (const auto& event : EventsOfAnUndecidedJob()) {
    if (event.has_round_done()) rounds.push_back(event.round_done());
    if (event.has_look() && first_look.rounds() == 0) first_look = event.look();
  }
  ASSERT_EQ(rounds.size(), 10U);
  EXPECT_EQ(rounds[0].running_size(), 0);  // One round has no spread.
  EXPECT_EQ(rounds[0].next_look(), 6);
  EXPECT_EQ(rounds[6].next_look(), 10);
  ASSERT_EQ(rounds[1].running_size(), 3);
  EXPECT_EQ(rounds[1].running(0).valued_rounds(), 2);
  EXPECT_LT(rounds[1].running(0).sup_lo(), rounds[1].running(0).mean());
  // At a look they are the look's own.
  ASSERT_EQ(rounds[5].running_size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(rounds[5].running(i).SerializeAsString(), first_look.series(i).SerializeAsString());
  }
}

TEST_F(BenchmarkHandlerTest, TellsWhatItDoesAtTheMomentToThoseWhoAsk) {
  JobServer server(dir_.path(), work_);
  std::atomic<bool> watched{false};
  work_->on_round = [&](int round, int) -> std::optional<WorkFailure> {
    while (round == 2 && !watched) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return std::nullopt;
  };
  v1::WatchJobRequest request;
  request.set_name(server.Create(TestSpec()).name());
  request.set_progress(true);
  server.Start();
  std::vector<v1::JobProgress> told;
  std::int64_t last = 0;
  const absl::Status status = server.handler().Watch(
      "ann", request,
      [&](const v1::JobEvent& event) {
        if (event.has_progress()) {
          EXPECT_EQ(event.sequence(), 0);
          told.push_back(event.progress());
          watched = watched || event.progress().round() == 3;
        } else {
          EXPECT_EQ(event.sequence(), ++last);
        }
        return true;
      },
      Always);
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_TRUE(watched);
  for (const v1::JobProgress& progress : told) {
    EXPECT_FALSE(progress.phase().empty());
    EXPECT_EQ(progress.phase() == "round", progress.round() > 0);
    EXPECT_EQ(progress.series().empty(), progress.series_count() == 0);
  }
}

TEST_F(BenchmarkHandlerTest, ADrainEndsWatchesAndAResumedOneHasNoGap) {
  std::string name;
  std::vector<v1::JobEvent> first;
  {
    JobServer server(dir_.path(), work_);
    std::atomic<bool> reached{false};
    work_->on_round = [&](int round, int) -> std::optional<WorkFailure> {
      reached = reached || round == 3;
      while (round == 3 && !server.runner().draining()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return std::nullopt;
    };
    name = server.Create(TestSpec()).name();
    server.Start();
    absl::Status status;
    std::thread watcher([&] { first = Watch(&server, name, 0, &status); });
    while (!reached) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    server.runner().StartDraining();
    watcher.join();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  }
  work_->on_round = nullptr;
  JobServer server(dir_.path(), work_);
  server.Start();
  absl::Status status;
  const auto rest = Watch(&server, name, first.back().sequence(), &status);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(rest.front().sequence(), first.back().sequence() + 1);
  EXPECT_EQ(rest.front().job().restarts(), 1);
  EXPECT_EQ(rest.back().job().state(), v1::BenchmarkJob::DONE);
}

TEST_F(BenchmarkHandlerTest, AWatchEndsWhenItsCallerHasGone) {
  JobServer server(dir_.path(), work_);  // Not started: the job stays queued.
  v1::WatchJobRequest request;
  request.set_name(server.Create(TestSpec()).name());
  EXPECT_EQ(server.handler()
                .Watch(
                    "ann", request, [](const v1::JobEvent&) { return false; }, Always)
                .code(),
            absl::StatusCode::kCancelled);
  int asked = 0;
  const auto deadline = [&]() -> absl::Status {
    return ++asked > 3 ? absl::DeadlineExceededError("late") : absl::OkStatus();
  };
  EXPECT_EQ(server.handler()
                .Watch(
                    "ann", request, [](const v1::JobEvent&) { return true; }, deadline)
                .code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(BenchmarkHandlerTest, CancelEndsAQueuedJobAndItsWatch) {
  JobServer server(dir_.path(), work_);
  const std::string name = server.Create(TestSpec()).name();
  absl::Status status;
  std::vector<v1::JobEvent> events;
  std::thread watcher([&] { events = Watch(&server, name, 0, &status); });
  v1::CancelJobRequest request;
  request.set_name(name);
  EXPECT_EQ(server.handler().Cancel("ann", request)->state(), v1::BenchmarkJob::CANCELLED);
  watcher.join();
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(events.back().job().state(), v1::BenchmarkJob::CANCELLED);
  server.Start();
  const std::string next = server.Create(TestSpec()).name();
  EXPECT_EQ(server.WaitForEnd(next).verdict(), "EQUIVALENT");
  EXPECT_EQ(work_->Calls("contract"), 1);  // The cancelled one never ran.
  EXPECT_EQ(server.handler().Cancel("ann", request)->state(), v1::BenchmarkJob::CANCELLED);
}

TEST_F(BenchmarkHandlerTest, AFullQueueRefusesWithADelay) {
  JobServer server(dir_.path(), work_);
  for (int i = 0; i < 8; ++i) server.Create(TestSpec());
  v1::CreateJobRequest request;
  *request.mutable_spec() = TestSpec();
  const auto refused = server.handler().Create("ann", request);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(GetRetryDelayMs(refused.status()).has_value());
}

TEST_F(BenchmarkHandlerTest, AReportOfAnEndedJobComesInPiecesWithItsDigests) {
  JobServer server(dir_.path(), work_);
  const std::string name = server.Create(TestSpec()).name();
  v1::GetReportRequest request;
  request.set_name(name);
  EXPECT_EQ(server.handler().GetReport("ann", request, [](const v1::GetReportResponse&) { return true; }).code(),
            absl::StatusCode::kFailedPrecondition);
  server.Start();
  server.WaitForEnd(name);
  std::vector<std::string> files;
  std::string data;
  ASSERT_TRUE(server.handler()
                  .GetReport("ann", request,
                             [&](const v1::GetReportResponse& piece) {
                               EXPECT_LE(piece.data().size(), std::size_t{1} << 20);
                               if (!piece.file_name().empty()) {
                                 files.push_back(piece.file_name());
                                 data.clear();
                               }
                               data += piece.data();
                               if (!piece.sha256().empty()) {
                                 EXPECT_EQ(piece.sha256(), Sha256Bytes(data));
                               }
                               return true;
                             })
                  .ok());
  EXPECT_THAT(files, ::testing::ElementsAre("report.json", "samples.csv", "diagnostics.csv", "excluded.csv"));
  EXPECT_EQ(server.handler().GetReport("ann", request, [](const v1::GetReportResponse&) { return false; }).code(),
            absl::StatusCode::kCancelled);

  request.add_file_names("excluded.csv");
  request.add_file_names("report.json");
  files.clear();
  ASSERT_TRUE(server.handler()
                  .GetReport("ann", request,
                             [&](const v1::GetReportResponse& piece) {
                               if (!piece.file_name().empty()) files.push_back(piece.file_name());
                               return true;
                             })
                  .ok());
  EXPECT_THAT(files, ::testing::ElementsAre("report.json", "excluded.csv"));
  request.add_file_names("../jobs.db");
  EXPECT_EQ(
      GetFieldViolation(server.handler().GetReport("ann", request, [](const v1::GetReportResponse&) { return true; }))
          ->field,
      "file_names");
}

}  // namespace
}  // namespace keval::server
