#include "server/session_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "server/gradient_request.h"
#include "server/host_memory_pool.h"
#include "server/session_batch.h"
#include "server/tensor_store.h"
#include "tests/unit/server/fake_backend.h"

namespace keval::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kNever[] = "sessions/000000000000000000000000000000000000000000000000";

class SessionStoreTest : public ::testing::Test {
 protected:
  SessionStoreTest() {
    absl::StatusOr<std::unique_ptr<Executor>> started = Executor::Start({}, FakeFactory(control_), &lease_);
    EXPECT_TRUE(started.ok()) << started.status();
    executor_ = *std::move(started);
    device_ = {"cpu", true, 0, &lease_, executor_.get()};
    store_ = std::make_unique<SessionStore>(MakeOptions());
  }

  SessionStore::Options MakeOptions() {
    SessionStore::Options options;
    options.max_sessions_per_principal = 3;
    options.default_lease = absl::Minutes(1);
    options.max_lease = absl::Minutes(10);
    options.now = [this] { return now_; };
    return options;
  }

  // Of [2, 3] and no bias, as an executor's work would open it.
  std::shared_ptr<GradientSession> Open(std::vector<ByteBudget::Reservation> reservations = {}) {
    std::unique_ptr<linear_logp::SessionTensors> tensors;
    linear_logp::Problem problem;
    problem.vocab_size = 2;
    problem.hidden_size = 3;
    const absl::StatusOr<Executor::Timing> opened = executor_->Run(
        [] { return absl::OkStatus(); }, Executor::Needs::kDevice,
        [&](GradientBackend& backend, const linear_logp::ContinueCheck&) {
          absl::StatusOr<std::unique_ptr<linear_logp::SessionTensors>> made = backend.OpenSession(problem, {});
          if (made.ok()) tensors = *std::move(made);
          return made.status();
        });
    EXPECT_TRUE(opened.ok()) << opened.status();
    GradientSession::Head head;
    head.device = &device_;
    head.weight = {DType::kFloat32, {2, 3}};
    return std::make_shared<GradientSession>(std::move(head), std::move(tensors), std::move(reservations));
  }

  std::string Insert(const std::string& principal, absl::Duration lease = absl::ZeroDuration()) {
    const absl::StatusOr<StoredSession> stored = store_->Insert(principal, Open(), lease);
    EXPECT_TRUE(stored.ok()) << stored.status();
    return stored.ok() ? stored->name : "";
  }

  // What the executor destroys, it destroys a little later.
  void ExpectSessionsOnDevice(int count) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (control_->sessions != count && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(control_->sessions, count);
  }

  const std::shared_ptr<FakeControl> control_ = std::make_shared<FakeControl>();
  DeviceLease lease_;
  std::unique_ptr<Executor> executor_;
  ServedDevice device_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  std::unique_ptr<SessionStore> store_;
};

TEST_F(SessionStoreTest, OthersSeeTheSameAsNothing) {
  const std::string name = Insert("ann");
  EXPECT_THAT(name, SizeIs(9 + 48));
  EXPECT_TRUE(store_->Stat("ann", name).ok());
  // Of this process, and never given.
  const std::string unknown = absl::StrCat(name.substr(0, 9 + 16), std::string(32, '0'));
  const absl::Status theirs = store_->Stat("bob", name).status();
  EXPECT_EQ(theirs.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(theirs.message(), store_->Stat("bob", unknown).status().message());
  EXPECT_EQ(theirs.message(), store_->Stat("ann", "sessions/short").status().message());
  EXPECT_EQ(store_->Use("bob", name).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->Touch("bob", name, absl::Minutes(1)).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->Delete("bob", name).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(store_->List("bob", "", 10), IsEmpty());
  EXPECT_THAT(store_->List("ann", "", 10), SizeIs(1));
}

TEST_F(SessionStoreTest, ANameOfAnotherProcessIsToldAsThat) {
  const absl::Status status = store_->Stat("ann", kNever).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("restarted"));
  ASSERT_TRUE(GetFieldViolation(status).has_value());
  EXPECT_EQ(GetFieldViolation(status)->field, "session");
  const std::string name = Insert("ann");
  EXPECT_THAT(std::string(SessionStore(MakeOptions()).Stat("ann", name).status().message()), HasSubstr("restarted"));
}

TEST_F(SessionStoreTest, UseRenewsTheLeaseAndItsEndFreesTheDevice) {
  const std::string name = Insert("ann");
  now_ += absl::Seconds(59);
  EXPECT_TRUE(store_->Use("ann", name).ok());
  now_ += absl::Seconds(59);
  EXPECT_TRUE(store_->Stat("ann", name).ok());  // Renews nothing.
  now_ += absl::Seconds(1);
  EXPECT_EQ(store_->Stat("ann", name).status().code(), absl::StatusCode::kNotFound);
  ExpectSessionsOnDevice(0);
}

TEST_F(SessionStoreTest, LeasesAreCutAndCanBeChanged) {
  const std::string name = Insert("ann", absl::Hours(5));
  const absl::StatusOr<StoredSession> stored = store_->Stat("ann", name);
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(stored->expires, now_ + absl::Minutes(10));
  now_ += absl::Minutes(9);
  const absl::StatusOr<StoredSession> shorter = store_->Touch("ann", name, absl::Seconds(1));
  ASSERT_TRUE(shorter.ok());
  EXPECT_EQ(shorter->expires, now_ + absl::Minutes(1));  // Never cut short.
  now_ += absl::Minutes(1) - absl::Milliseconds(1);
  ASSERT_TRUE(store_->Touch("ann", name, absl::ZeroDuration()).ok());
  now_ += absl::Seconds(1);
  EXPECT_FALSE(store_->Stat("ann", name).ok());
}

TEST_F(SessionStoreTest, WhoStillUsesItKeepsItsMemoryAndFindsItEnded) {
  const std::string name = Insert("ann");
  absl::StatusOr<std::shared_ptr<GradientSession>> used = store_->Use("ann", name);
  ASSERT_TRUE(used.ok());
  EXPECT_FALSE((*used)->ended());
  ASSERT_TRUE(store_->Delete("ann", name).ok());
  EXPECT_EQ(store_->Delete("ann", name).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE((*used)->ended());
  store_->Renew(**used);  // Of no use any more.
  EXPECT_EQ(control_->sessions, 1);
  used->reset();
  ExpectSessionsOnDevice(0);
}

TEST_F(SessionStoreTest, SoManyOfOneCallerAndNoMore) {
  for (int i = 0; i < 3; ++i) Insert("ann");
  const absl::Status full = store_->CheckRoom("ann");
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetFieldViolation(full)->field, "sessions");
  EXPECT_EQ(store_->Insert("ann", Open(), absl::ZeroDuration()).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store_->CheckRoom("bob").ok());
  now_ += absl::Minutes(1);
  EXPECT_TRUE(store_->CheckRoom("ann").ok());
  EXPECT_EQ(store_->size(), 0);
}

// Bytes are counted until the device has them back.
TEST_F(SessionStoreTest, BytesAreCountedUntilTheyAreFree) {
  TensorStore::Options options;
  options.max_bytes = 1000;
  options.max_bytes_per_principal = 600;
  TensorStore tensors(options, std::make_shared<HostMemoryPool>(0));
  EXPECT_EQ(tensors.Reserve("ann", 601).status().code(), absl::StatusCode::kResourceExhausted);
  absl::StatusOr<std::vector<ByteBudget::Reservation>> reservations = tensors.Reserve("ann", 500);
  ASSERT_TRUE(reservations.ok());
  std::shared_ptr<GradientSession> session = Open(*std::move(reservations));
  EXPECT_EQ(session->bytes(), 500);
  EXPECT_EQ(tensors.used_bytes(), 500);
  EXPECT_EQ(tensors.Allocate("ann", 101).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(tensors.Allocate("bob", 500).ok());
  session.reset();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (tensors.used_bytes() > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(tensors.used_bytes(), 0);
  EXPECT_EQ(control_->sessions, 0);
  EXPECT_TRUE(tensors.Allocate("ann", 600).ok());
}

TEST_F(SessionStoreTest, TheLastIdsAreRememberedAcrossResets) {
  const std::shared_ptr<GradientSession> session = Open();
  const auto id = [](std::size_t i) { return absl::StrCat(i, std::string(16, 'x')).substr(0, 16); };
  constexpr std::size_t kCount = GradientSession::kRememberedBatches + 1;
  for (std::size_t i = 1; i <= kCount; ++i) {
    EXPECT_FALSE(session->SequenceOf(id(i)).has_value());
    EXPECT_EQ(session->RecordBatch(id(i), 2), static_cast<std::int64_t>(i));
  }
  EXPECT_FALSE(session->SequenceOf(id(1)).has_value());  // Forgotten.
  EXPECT_EQ(session->SequenceOf(id(2)), 2);
  EXPECT_EQ(session->SequenceOf(id(kCount)), static_cast<std::int64_t>(kCount));
  EXPECT_EQ(session->progress().batches, static_cast<std::int64_t>(kCount));
  v1::FetchSessionResponse answer;
  answer.mutable_session()->set_batches(7);
  for (std::size_t i = 0; i <= GradientSession::kRememberedResets; ++i) session->RecordReset(id(i), answer);
  EXPECT_EQ(session->progress().batches, 0);
  EXPECT_EQ(session->progress().num_tokens, 0);
  EXPECT_EQ(session->progress().sequence, static_cast<std::int64_t>(kCount));
  EXPECT_EQ(session->SequenceOf(id(2)), 2);
  EXPECT_FALSE(session->AnswerOf(id(0)).has_value());
  ASSERT_TRUE(session->AnswerOf(id(1)).has_value());
  EXPECT_EQ(session->AnswerOf(id(1))->session().batches(), 7);
}

// Known when it begins, forgotten when it ends: what wasn't summed up isn't counted as new.
TEST_F(SessionStoreTest, AnIdThatWasKnownAtTheBeginningStaysKnown) {
  control_->takes_chunks = true;
  GradientCall call;
  call.session = Open();
  call.batch_id = "0123456789abcdef";
  call.want = {true, true, false};
  call.problem.num_tokens = 2;
  call.problem.vocab_size = 2;
  call.problem.hidden_size = 3;
  EXPECT_EQ(call.session->RecordBatch(call.batch_id, 2), 1);
  v1::SessionBatchResult result;
  const absl::StatusOr<Executor::Timing> ran =
      executor_->Run([] { return absl::OkStatus(); }, Executor::Needs::kDevice,
                     [&](GradientBackend& backend, const linear_logp::ContinueCheck& check) -> absl::Status {
                       const auto gradient = BeginBatch(backend, call, &result);
                       if (!gradient.ok()) return gradient.status();
                       for (std::size_t i = 0; i < GradientSession::kRememberedBatches; ++i) {
                         call.session->RecordBatch(absl::StrCat(i, std::string(16, 'x')).substr(0, 16), 1);
                       }
                       EXPECT_FALSE(call.session->SequenceOf(call.batch_id).has_value());
                       return FinishBatch(backend, call, gradient->get(), check, &result).status();
                     });
  ASSERT_TRUE(ran.ok()) << ran.status();
  EXPECT_TRUE(result.repeated());
  EXPECT_EQ(result.sequence(), 1);
  EXPECT_EQ(call.session->progress().sequence, static_cast<std::int64_t>(GradientSession::kRememberedBatches) + 1);
}

}  // namespace
}  // namespace keval::server
