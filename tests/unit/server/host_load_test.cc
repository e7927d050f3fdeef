#include "server/worker/host_load.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

namespace keval::worker {
namespace {

TEST(HostLoadTest, AnotherProcessIsForeignUnlessItIsAWorker) {
  const HostLoad load;
  const pid_t burner = fork();
  if (burner == 0) {
    alarm(60);
    for (std::atomic<unsigned> n{0};; ++n) {
    }
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  // Whatever else the machine does is in both.
  const double as_worker = load.ForeignCores({burner, getpid()});
  const double as_stranger = load.ForeignCores({getpid()});
  kill(burner, SIGKILL);
  waitpid(burner, nullptr, 0);
  EXPECT_GE(as_worker, 0);
  EXPECT_GT(as_stranger, as_worker + 0.05);
}

TEST(HostLoadTest, AWorkerThatHasGoneLeavesNoAnswer) {
  const HostLoad load;
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  EXPECT_TRUE(std::isnan(load.ForeignCores({2147483647})));
}

TEST(HostLoadTest, TooShortATimeLeavesNoAnswer) { EXPECT_TRUE(std::isnan(HostLoad().ForeignCores({}))); }

}  // namespace
}  // namespace keval::worker
