#include "server/free_memory.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "keval/v1/server_info.grpc.pb.h"
#include "tests/unit/server/fake_backend.h"
#include "tests/unit/server/kevald_fixture.h"

namespace keval::server {
namespace {

using std::chrono::milliseconds;

class FreeMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = Executor::Start({.device = "cpu"}, FakeFactory(control_), &lease_);
    ASSERT_TRUE(started.ok()) << started.status();
    executor_ = *std::move(started);
  }

  const std::shared_ptr<FakeControl> control_ = std::make_shared<FakeControl>();
  DeviceLease lease_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(FreeMemoryTest, IsAskedAgainOnceTheAnswerIsOld) {
  FreeMemory memory({.fresh = milliseconds(0), .patience = milliseconds(10000)});
  EXPECT_EQ(memory.Bytes("cpu", executor_.get(), 5), 1000);
  control_->free_bytes = 700;
  EXPECT_EQ(memory.Bytes("cpu", executor_.get(), 5), 700);
}

TEST_F(FreeMemoryTest, AFreshAnswerIsNotAskedForAgain) {
  FreeMemory memory({.fresh = std::chrono::hours(1), .patience = milliseconds(10000)});
  EXPECT_EQ(memory.Bytes("cpu", executor_.get(), 5), 1000);
  control_->free_bytes = 700;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(memory.Bytes("cpu", executor_.get(), 5), 1000);
  EXPECT_EQ(control_->free_bytes_asked, 1);
}

TEST_F(FreeMemoryTest, ABusyDeviceKeepsItsLastAnswerAndTheCallerDoesNotWait) {
  FreeMemory memory({.fresh = milliseconds(0), .patience = milliseconds(20)});
  EXPECT_EQ(memory.Bytes("cpu", executor_.get(), 5), 1000);
  absl::Notification running;
  absl::Notification release;
  std::thread busy([&] {
    const auto ran = executor_->Run([] { return absl::OkStatus(); }, Executor::Needs::kDevice,
                                    [&](GradientBackend&, const linear_logp::ContinueCheck&) {
                                      running.Notify();
                                      release.WaitForNotification();
                                      return absl::OkStatus();
                                    });
    EXPECT_TRUE(ran.ok());
  });
  running.WaitForNotification();
  control_->free_bytes = 700;
  EXPECT_EQ(memory.Bytes("cpu", executor_.get(), 5), 1000);  // Returns, though the device is never released meanwhile.
  EXPECT_EQ(executor_->queued(), 0);
  release.Notify();
  busy.join();
}

TEST_F(FreeMemoryTest, ADeviceThatCannotBeAskedHasTheFigureOfTheStart) {
  FreeMemory memory({.fresh = milliseconds(0), .patience = milliseconds(10000)});
  control_->free_bytes = -1;
  EXPECT_EQ(memory.Bytes("cpu", executor_.get(), 5), 5);
  executor_->Stop();
  EXPECT_EQ(memory.Bytes("cpu", executor_.get(), 5), 5);
}

using ServerInfoTest = KevaldTest;

TEST_F(ServerInfoTest, FreeBytesAreLiveWhereGradientsRun) {
  Start();
  control_->free_bytes = 424242;
  v1::ServerInfo info;
  grpc::ClientContext context;
  ASSERT_TRUE(v1::ServerInfoService::NewStub(channel_)->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.devices(0).free_bytes(), 424242);
}

}  // namespace
}  // namespace keval::server
