#include "server/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/field_error.h"
#include "tests/unit/server/fake_backend.h"

namespace keval::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Status Fine() { return absl::OkStatus(); }
linear_logp::ContinueCheck Counting(std::atomic<int>* checks) {
  return [checks] {
    ++*checks;
    return absl::OkStatus();
  };
}
absl::Status NoWork(GradientBackend& /*backend*/, const linear_logp::ContinueCheck& /*check*/) {
  return absl::OkStatus();
}

// Waits until `done`, at most 10 s.
template <typename Condition>
bool Eventually(Condition done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class ExecutorTest : public ::testing::Test {
 protected:
  void Start(int max_queued = 64) {
    Executor::Options options;
    options.device = "cpu";
    options.max_queued = max_queued;
    options.on_device_lost = [this] { ++lost_; };
    absl::StatusOr<std::unique_ptr<Executor>> started =
        Executor::Start(std::move(options), FakeFactory(control_), &lease_);
    ASSERT_TRUE(started.ok()) << started.status();
    executor_ = *std::move(started);
  }

  // Occupies the executor until `release` is notified.
  std::thread Occupy(absl::Notification* running, absl::Notification* release) {
    return std::thread([this, running, release] {
      const auto ran = executor_->Run(Fine, Executor::Needs::kDevice,
                                      [&](GradientBackend& /*backend*/, const linear_logp::ContinueCheck& /*check*/) {
                                        running->Notify();
                                        release->WaitForNotification();
                                        return absl::OkStatus();
                                      });
      EXPECT_TRUE(ran.ok()) << ran.status();
    });
  }

  // Until the executor's thread waits for the lease with a request whose `checks` count how often it was asked.
  bool WaitsForTheLease(const std::atomic<int>& checks) {
    if (!Eventually([this] { return executor_->queued() == 0; })) return false;
    const int taken_up = checks;
    return Eventually([&] { return checks >= taken_up + 3; });  // Once before it asks for the lease.
  }

  const std::shared_ptr<FakeControl> control_ = std::make_shared<FakeControl>();
  std::atomic<int> lost_ = 0;
  DeviceLease lease_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(ExecutorTest, FactoryErrorIsReturned) {
  const auto started = Executor::Start(
      Executor::Options(),
      []() -> absl::StatusOr<std::unique_ptr<GradientBackend>> { return absl::FailedPreconditionError("no device"); },
      &lease_);
  EXPECT_EQ(started.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ExecutorTest, EveryCallToTheBackendIsOnOneThreadThatIsNotTheCallers) {
  Start();
  std::vector<std::thread::id> ids;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(executor_
                    ->Run(Fine, Executor::Needs::kDevice,
                          [&](GradientBackend&, const linear_logp::ContinueCheck&) {
                            ids.push_back(std::this_thread::get_id());
                            return absl::OkStatus();
                          })
                    .ok());
  }
  EXPECT_THAT(ids, ElementsAre(ids[0], ids[0], ids[0]));
  EXPECT_NE(ids[0], std::this_thread::get_id());
}

TEST_F(ExecutorTest, TimesQueueAndComputeApart) {
  Start();
  const auto timing =
      executor_->Run(Fine, Executor::Needs::kDevice, [](GradientBackend&, const linear_logp::ContinueCheck&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return absl::OkStatus();
      });
  ASSERT_TRUE(timing.ok());
  EXPECT_GE(timing->compute_ns, 20'000'000);
  EXPECT_GT(timing->queue_ns, 0);
}

TEST_F(ExecutorTest, FullQueueIsRefusedWithARetryDelay) {
  Start(/*max_queued=*/1);
  absl::Notification running;
  absl::Notification release;
  std::thread busy = Occupy(&running, &release);
  running.WaitForNotification();
  std::thread waiting([this] { EXPECT_TRUE(executor_->Run(Fine, Executor::Needs::kDevice, NoWork).ok()); });
  ASSERT_TRUE(Eventually([this] { return executor_->queued() == 1; }));

  const auto refused = executor_->Run(Fine, Executor::Needs::kDevice, NoWork);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(GetRetryDelayMs(refused.status()).has_value());

  release.Notify();
  busy.join();
  waiting.join();
  EXPECT_TRUE(executor_->Run(Fine, Executor::Needs::kDevice, NoWork).ok());  // There is room again.
}

TEST_F(ExecutorTest, CancelledRequestLeavesTheQueueAtOnceAndNeverRuns) {
  Start();
  absl::Notification running;
  absl::Notification release;
  std::thread busy = Occupy(&running, &release);
  running.WaitForNotification();
  std::atomic<bool> cancelled = false;
  std::atomic<bool> ran = false;
  std::thread waiting([&] {
    const auto check = [&] { return cancelled ? absl::CancelledError("gone") : absl::OkStatus(); };
    const auto result =
        executor_->Run(check, Executor::Needs::kDevice, [&](GradientBackend&, const linear_logp::ContinueCheck&) {
          ran = true;
          return absl::OkStatus();
        });
    EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
  });
  ASSERT_TRUE(Eventually([this] { return executor_->queued() == 1; }));
  cancelled = true;
  waiting.join();  // Although the executor is still busy.
  EXPECT_EQ(executor_->queued(), 0);
  release.Notify();
  busy.join();
  EXPECT_FALSE(ran);
}

TEST_F(ExecutorTest, RunningRequestStopsAtItsNextCheck) {
  Start();
  std::atomic<bool> expired = false;
  const auto check = [&] { return expired ? absl::DeadlineExceededError("late") : absl::OkStatus(); };
  int chunks = 0;
  const auto result = executor_->Run(check, Executor::Needs::kDevice,
                                     [&](GradientBackend&, const linear_logp::ContinueCheck& go_on) -> absl::Status {
                                       for (; chunks < 100; ++chunks) {
                                         if (absl::Status status = go_on(); !status.ok()) return status;
                                         if (chunks == 2) expired = true;
                                       }
                                       return absl::OkStatus();
                                     });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(chunks, 3);
}

TEST_F(ExecutorTest, RequestsRunInOrderOfArrival) {
  Start();
  absl::Notification running;
  absl::Notification release;
  std::thread busy = Occupy(&running, &release);
  running.WaitForNotification();
  std::vector<int> order;  // Written by the executor's thread alone.
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i, &order] {
      EXPECT_TRUE(executor_
                      ->Run(Fine, Executor::Needs::kDevice,
                            [&](GradientBackend&, const linear_logp::ContinueCheck&) {
                              order.push_back(i);
                              return absl::OkStatus();
                            })
                      .ok());
    });
    ASSERT_TRUE(Eventually([this, i] { return executor_->queued() == i + 1; }));
  }
  release.Notify();
  busy.join();
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3));
}

TEST_F(ExecutorTest, WaitsForTheLeaseAndTakesTurnsWithItsOtherUser) {
  Start();
  absl::StatusOr<DeviceLease::Grant> quad = lease_.Acquire(Fine);
  ASSERT_TRUE(quad.ok());
  std::atomic<bool> done = false;
  std::atomic<int> checks = 0;
  std::thread gradient([&] {
    EXPECT_TRUE(executor_->Run(Counting(&checks), Executor::Needs::kDevice, NoWork).ok());
    done = true;
  });
  ASSERT_TRUE(WaitsForTheLease(checks));
  EXPECT_FALSE(done);
  quad->Release();
  // The request waited first, so the next quad comes after it.
  const absl::StatusOr<DeviceLease::Grant> next = lease_.Acquire(Fine);
  ASSERT_TRUE(next.ok());
  gradient.join();
  EXPECT_TRUE(done);
}

TEST_F(ExecutorTest, QuestionsToTheBackendNeedNoLease) {
  Start();
  const absl::StatusOr<DeviceLease::Grant> quad = lease_.Acquire(Fine);
  ASSERT_TRUE(quad.ok());
  EXPECT_TRUE(executor_->Run(Fine, Executor::Needs::kNothing, NoWork).ok());
}

TEST_F(ExecutorTest, CancelledWhileWaitingForTheLease) {
  Start();
  const absl::StatusOr<DeviceLease::Grant> quad = lease_.Acquire(Fine);
  ASSERT_TRUE(quad.ok());
  std::atomic<bool> cancelled = false;
  std::atomic<int> checks = 0;
  std::thread gradient([&] {
    const auto check = [&] {
      ++checks;
      return cancelled ? absl::CancelledError("gone") : absl::OkStatus();
    };
    EXPECT_EQ(executor_->Run(check, Executor::Needs::kDevice, NoWork).status().code(), absl::StatusCode::kCancelled);
  });
  ASSERT_TRUE(WaitsForTheLease(checks));
  cancelled = true;
  gradient.join();
}

TEST_F(ExecutorTest, WorkersFindTheCacheReleasedOnceForAllThatRan) {
  Start();
  lease_.SetReleaseCache([this] { executor_->ReleaseCache(); });
  const auto take_turn = [this] { EXPECT_TRUE(lease_.AcquireForWorkers(Fine).ok()); };
  take_turn();
  EXPECT_EQ(control_->caches_released, 0);  // Nothing has run yet.
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(executor_->Run(Fine, Executor::Needs::kDevice, NoWork).ok());
  EXPECT_EQ(control_->caches_released, 0);  // Requests among themselves keep it.
  take_turn();
  take_turn();
  EXPECT_EQ(control_->caches_released, 1);
}

TEST_F(ExecutorTest, TheCacheIsReleasedWhileARequestWaitsForTheLease) {
  Start();
  ASSERT_TRUE(executor_->Run(Fine, Executor::Needs::kDevice, NoWork).ok());
  absl::StatusOr<DeviceLease::Grant> quad = lease_.Acquire(Fine);
  ASSERT_TRUE(quad.ok());
  std::atomic<int> checks = 0;
  std::thread gradient([&] { EXPECT_TRUE(executor_->Run(Counting(&checks), Executor::Needs::kDevice, NoWork).ok()); });
  ASSERT_TRUE(WaitsForTheLease(checks));
  executor_->ReleaseCache();
  EXPECT_EQ(control_->caches_released, 1);
  quad->Release();
  gradient.join();
}

TEST_F(ExecutorTest, NobodyWaitsForACacheOfAnExecutorThatEnds) {
  Start();
  absl::Notification running;
  absl::Notification release;
  std::thread busy = Occupy(&running, &release);
  running.WaitForNotification();
  std::thread workers([this] { executor_->ReleaseCache(); });
  std::thread stop([this] { executor_->Stop(); });
  workers.join();  // Although the backend's thread is busy.
  release.Notify();
  busy.join();
  stop.join();
}

TEST_F(ExecutorTest, LostDeviceEndsWhatWaitsAndRefusesWhatComes) {
  Start();
  const auto lost =
      executor_->Run(Fine, Executor::Needs::kDevice, [&](GradientBackend&, const linear_logp::ContinueCheck&) {
        control_->healthy = false;
        return absl::AbortedError("cudaErrorIllegalAddress");
      });
  EXPECT_EQ(lost.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(lost.status().message()), HasSubstr("device cpu was lost"));
  ASSERT_TRUE(Eventually([this] { return lost_ == 1; }));
  EXPECT_FALSE(executor_->healthy());
  EXPECT_EQ(executor_->Run(Fine, Executor::Needs::kDevice, NoWork).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(lost_, 1);
}

TEST_F(ExecutorTest, StopEndsRunningAndQueuedRequests) {
  Start();
  absl::Notification running;
  std::thread busy([&] {
    const auto result = executor_->Run(Fine, Executor::Needs::kDevice,
                                       [&](GradientBackend&, const linear_logp::ContinueCheck& go_on) -> absl::Status {
                                         running.Notify();
                                         while (true) {
                                           if (absl::Status status = go_on(); !status.ok()) return status;
                                           std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                         }
                                       });
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
  });
  running.WaitForNotification();
  std::thread waiting([&] {
    EXPECT_EQ(executor_->Run(Fine, Executor::Needs::kDevice, NoWork).status().code(), absl::StatusCode::kUnavailable);
  });
  ASSERT_TRUE(Eventually([this] { return executor_->queued() == 1; }));
  executor_->Stop();
  busy.join();
  waiting.join();
  EXPECT_EQ(executor_->Run(Fine, Executor::Needs::kDevice, NoWork).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ExecutorTest, WhatIsDiscardedIsDestroyedOnItsThreadBeforeTheNextRequest) {
  struct Noting {
    explicit Noting(std::atomic<std::thread::id>* thread_in) : thread(thread_in) {}
    ~Noting() { *thread = std::this_thread::get_id(); }
    Noting(const Noting&) = delete;
    Noting& operator=(const Noting&) = delete;
    std::atomic<std::thread::id>* const thread;
  };
  Start();
  std::atomic<std::thread::id> destroyed_on;
  absl::Notification running;
  absl::Notification release;
  std::thread first = Occupy(&running, &release);
  running.WaitForNotification();
  executor_->Discard(std::make_shared<Noting>(&destroyed_on));
  EXPECT_EQ(destroyed_on.load(), std::thread::id());
  release.Notify();
  first.join();
  std::thread::id executors;
  bool before = false;
  ASSERT_TRUE(executor_
                  ->Run(Fine, Executor::Needs::kNothing,
                        [&](GradientBackend&, const linear_logp::ContinueCheck&) {
                          executors = std::this_thread::get_id();
                          before = destroyed_on.load() == executors;
                          return absl::OkStatus();
                        })
                  .ok());
  EXPECT_TRUE(before);
  // Also without a request, and with one that nobody makes any more.
  destroyed_on = std::thread::id();
  executor_->Discard(std::make_shared<Noting>(&destroyed_on));
  EXPECT_TRUE(Eventually([&] { return destroyed_on.load() == executors; }));
  executor_->Stop();
  executor_->Discard(std::make_shared<Noting>(&destroyed_on));
  executor_.reset();
  EXPECT_EQ(destroyed_on.load(), std::this_thread::get_id());
}

}  // namespace
}  // namespace keval::server
