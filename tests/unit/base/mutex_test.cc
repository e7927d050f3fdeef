#include "base/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace keval {
namespace {

TEST(MutexTest, WaitUntilTimesOut) {
  Mutex mutex;
  CondVar condition;
  MutexLock lock(&mutex);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  while (condition.WaitUntil(&mutex, deadline)) {
  }
  EXPECT_GE(std::chrono::steady_clock::now(), deadline - std::chrono::milliseconds(5));
}

TEST(MutexTest, SignalWakesAWaiter) {
  Mutex mutex;
  CondVar condition;
  bool ready = false;
  std::thread waiter([&] {
    MutexLock lock(&mutex);
    while (!ready) condition.Wait(&mutex);
  });
  {
    MutexLock lock(&mutex);
    ready = true;
  }
  condition.SignalAll();
  waiter.join();
  MutexLock lock(&mutex);
  EXPECT_TRUE(ready);
}

}  // namespace
}  // namespace keval
