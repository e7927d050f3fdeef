// Which clock a job's device runs at: nobody's business unless the operator asked for a lock, and given back
// afterwards.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "core/measure/clock_lock.h"
#include "server/clock_guard.h"
#include "tests/support/fake_round_collector.h"
#include "tests/support/job_fixtures.h"
#include "tests/support/job_server.h"
#include "tests/support/temp_dir.h"

namespace keval::server {
namespace {

using keval::testing::FakeWork;
using keval::testing::JobServer;
using keval::testing::TempDir;
using ::testing::HasSubstr;

constexpr char kIdle[] = "GPU-00000000-0000-0000-0000-000000000000";
constexpr char kShared[] = "GPU-12345678-1234-1234-1234-123456789abc";

class JobClockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("KEVAL_NVML_LIBRARY", KEVAL_FAKE_NVML, 1);
    setenv("KEVAL_FAKE_NVML_STATE", state_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("KEVAL_NVML_LIBRARY");
    unsetenv("KEVAL_FAKE_NVML_STATE");
  }

  // A server of the GPU with that UUID.
  std::unique_ptr<JobServer> Serve(const char* uuid, int lock_mhz,
                                   std::chrono::milliseconds patience = std::chrono::milliseconds(0)) {
    SpecContext context = keval::testing::TestContext();
    context.devices = {context.devices[1]};
    context.devices[0].set_uuid(uuid);
    return std::make_unique<JobServer>(dir_.path(), work_, context,
                                       ClockPolicy{lock_mhz, dir_.path(), guard_, patience});
  }
  static v1::BenchmarkSpec GpuSpec() {
    auto spec = keval::testing::TestSpec();
    spec.mutable_target()->set_device("cuda:0");
    return spec;
  }
  std::string Told() const {
    std::ifstream file(state_);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  static std::string Clock(JobServer* server, const std::string& name) {
    return nlohmann::json::parse(server->Report(name).at("report.json")).at("environment").at("gpu_clock_lock");
  }

  std::unique_ptr<ClockGuard> Guard(const std::string& owner) {
    auto guard = ClockGuard::Start(guard_, dir_.path(), kIdle, owner);
    EXPECT_TRUE(guard.ok()) << guard.status();
    return guard.ok() ? *std::move(guard) : nullptr;
  }
  std::unique_ptr<measure::ClockLock> Lock(const std::string& owner) {
    auto lock = measure::ClockLock::Take(kIdle, 1200, dir_.path(), owner);
    EXPECT_TRUE(lock.ok()) << lock.status();
    return lock.ok() ? *std::move(lock) : nullptr;
  }
  bool Recorded() const { return std::filesystem::exists(record_); }
  // A server that has locked the clock, `guarded` or with its guard killed, then is killed itself.
  void KillAServer(bool guarded);

  const TempDir dir_;
  const std::string record_ = dir_.path() + "/clock_lock." + kIdle;
  const std::string state_ = dir_.path() + "/fake_nvml_state";
  std::string guard_ = KEVAL_CLOCK_GUARD;
  const std::shared_ptr<FakeWork> work_ = std::make_shared<FakeWork>();
  const std::string locked_ = std::string("lock ") + kIdle + " 1200\n";
  const std::string unlocked_ = std::string("unlock ") + kIdle + " 0\n";
};

TEST_F(JobClockTest, IsLockedWhileAJobRunsAndGivenBackAtItsEnd) {
  std::string during;
  work_->on_round = [&](int, int) -> std::optional<WorkFailure> {
    during = Told();
    return std::nullopt;
  };
  const auto server = Serve(kIdle, 1200);
  const std::string name = server->Create(GpuSpec()).name();
  server->Start();
  server->WaitForEnd(name);
  server->runner().Drain();  // The runner is through with the job only some time after its end is in the store.
  EXPECT_EQ(during, locked_);
  EXPECT_EQ(Told(), locked_ + unlocked_);
  EXPECT_EQ(Clock(server.get(), name), "locked to 1200 MHz while the job ran");
}

TEST_F(JobClockTest, IsGivenBackWhenAJobIsCancelled) {
  std::atomic<bool> reached{false};
  std::atomic<bool> told{false};
  work_->on_round = [&](int, int) -> std::optional<WorkFailure> {
    reached = true;
    while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return std::nullopt;
  };
  const auto server = Serve(kIdle, 1200);
  const std::string name = server->Create(GpuSpec()).name();
  server->Start();
  while (!reached) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  v1::CancelJobRequest request;
  request.set_name(name);
  const auto cancelled = server->handler().Cancel("ann", request);
  told = true;
  ASSERT_TRUE(cancelled.ok());
  server->runner().Drain();
  EXPECT_EQ(Told(), locked_ + unlocked_);
}

TEST_F(JobClockTest, StaysAloneUnlessAskedFor) {
  const auto server = Serve(kIdle, 0);
  const std::string name = server->Create(GpuSpec()).name();
  server->Start();
  server->WaitForEnd(name);
  EXPECT_EQ(Told(), "");
  EXPECT_EQ(Clock(server.get(), name), "not locked: not asked for");
}

TEST_F(JobClockTest, OfASharedDeviceStaysAloneAndTheJobRuns) {
  const auto server = Serve(kShared, 1200);
  const std::string name = server->Create(GpuSpec()).name();
  server->Start();
  EXPECT_EQ(server->WaitForEnd(name).verdict(), "EQUIVALENT");
  EXPECT_EQ(Told(), "");
  EXPECT_THAT(Clock(server.get(), name), HasSubstr("left as it is: the device is shared"));
}

// A killed server's workers take a moment to end.
TEST_F(JobClockTest, OfADeviceThatOthersAreAboutToLeaveIsLockedWhenTheyHave) {
  const std::string guest = dir_.path() + "/guest";
  std::ofstream(guest) << "there";
  setenv("KEVAL_FAKE_NVML_GUEST", guest.c_str(), 1);
  const auto server = Serve(kIdle, 1200, std::chrono::minutes(1));
  const std::string name = server->Create(GpuSpec()).name();
  server->Start();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(Told(), "");
  std::filesystem::remove(guest);
  EXPECT_EQ(server->WaitForEnd(name).verdict(), "EQUIVALENT");
  server->runner().Drain();
  unsetenv("KEVAL_FAKE_NVML_GUEST");
  EXPECT_EQ(Told(), locked_ + unlocked_);
  EXPECT_EQ(Clock(server.get(), name), "locked to 1200 MHz while the job ran");
}

TEST_F(JobClockTest, WithoutAGuardItStaysAlone) {
  guard_ = "/nonexistent/kevald";
  const auto server = Serve(kIdle, 1200);
  const std::string name = server->Create(GpuSpec()).name();
  server->Start();
  EXPECT_EQ(server->WaitForEnd(name).verdict(), "EQUIVALENT");
  EXPECT_EQ(Told(), "");
  EXPECT_THAT(Clock(server.get(), name), HasSubstr("left as it is: the clock's guard can't be started"));
}

TEST_F(JobClockTest, WithAGuardThatDoesNotSayThatItWatchesItStaysAlone) {
  guard_ = "/bin/true";
  const auto server = Serve(kIdle, 1200);
  const std::string name = server->Create(GpuSpec()).name();
  server->Start();
  EXPECT_EQ(server->WaitForEnd(name).verdict(), "EQUIVALENT");
  EXPECT_EQ(Told(), "");
  EXPECT_THAT(Clock(server.get(), name), HasSubstr("it did not say that it watches"));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // No child is left.
}

void JobClockTest::KillAServer(bool guarded) {
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t server = fork();
  if (server == 0) {
    const auto guard = Guard("killed");
    const auto lock = Lock("killed");
    bool done = guard != nullptr && lock != nullptr;
    if (done && !guarded) {
      siginfo_t ended{};
      done = kill(guard->pid(), SIGKILL) == 0 &&
             waitid(P_PID, static_cast<id_t>(guard->pid()), &ended, WEXITED | WNOWAIT) == 0;
    }
    const char byte = done ? '1' : '0';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    pause();
    _exit(1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, '1');
  EXPECT_EQ(Told(), locked_);
  kill(server, SIGKILL);
  ASSERT_EQ(waitpid(server, nullptr, 0), server);
  close(ready[0]);
  close(ready[1]);
}

// Nobody starts the server again: its guard does what it can't.
TEST_F(JobClockTest, OfAServerThatIsKilledIsGivenBackByItsGuard) {
  KillAServer(true);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (Recorded() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(Recorded());
  EXPECT_EQ(Told(), locked_ + unlocked_);
}

TEST_F(JobClockTest, OfAServerThatIsKilledAfterItsGuardIsGivenBackAtTheNextStart) {
  KillAServer(false);
  EXPECT_TRUE(Recorded());
  Serve(kIdle, 0)->Start();
  EXPECT_FALSE(Recorded());
  EXPECT_EQ(Told(), locked_ + unlocked_);
}

TEST_F(JobClockTest, TheGuardEndsWithALockThatWasGivenBack) {
  {
    const auto guard = Guard("one");
    const auto lock = Lock("one");
    ASSERT_TRUE(guard != nullptr && lock != nullptr);
    EXPECT_TRUE(guard->Watches());
  }
  EXPECT_EQ(Told(), locked_ + unlocked_);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // No child is left.
}

TEST_F(JobClockTest, AGuardThatIsKilledLeavesTheLockItsEnd) {
  {
    const auto guard = Guard("one");
    const auto lock = Lock("one");
    ASSERT_TRUE(guard != nullptr && lock != nullptr);
    kill(guard->pid(), SIGKILL);
    siginfo_t ended{};
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(guard->pid()), &ended, WEXITED | WNOWAIT), 0);
    EXPECT_FALSE(guard->Watches());
    EXPECT_EQ(Told(), locked_);
  }
  EXPECT_EQ(Told(), locked_ + unlocked_);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

// It wakes late: meanwhile the next server has given the clock back and locked it for a job of its own.
TEST_F(JobClockTest, TheGuardOfADeadServerLeavesTheNextServersClockAlone) {
  auto dead = Guard("dead");
  const auto lock = Lock("next");
  ASSERT_TRUE(dead != nullptr && lock != nullptr);
  dead.reset();  // Returns when the guard has ended.
  EXPECT_EQ(Told(), locked_);
  EXPECT_TRUE(Recorded());
}

TEST_F(JobClockTest, AGuardThatCantGiveTheClockBackSaysSo) {
  ::testing::internal::CaptureStderr();
  setenv("KEVAL_FAKE_NVML_DENY", "1", 1);
  auto guard = Guard("one");
  unsetenv("KEVAL_FAKE_NVML_DENY");
  const auto lock = Lock("one");
  guard.reset();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr(kIdle));
  EXPECT_THAT(said, HasSubstr("can't be given back: Insufficient Permissions"));
  EXPECT_TRUE(Recorded());
}

TEST_F(JobClockTest, LeftByAKilledServerIsGivenBackAtTheNextStart) {
  std::ofstream(dir_.path() + "/clock_lock." + kIdle) << "SM clock locked";
  Serve(kIdle, 0)->Start();
  EXPECT_EQ(Told(), unlocked_);
}

}  // namespace
}  // namespace keval::server
