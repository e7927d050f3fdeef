#include "core/measure/clock_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/support/temp_dir.h"

namespace keval::measure {
namespace {

using ::testing::HasSubstr;

constexpr char kIdle[] = "GPU-00000000-0000-0000-0000-000000000000";
constexpr char kShared[] = "GPU-12345678-1234-1234-1234-123456789abc";
constexpr char kSplit[] = "GPU-99999999-9999-9999-9999-999999999999";

class ClockLockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("KEVAL_NVML_LIBRARY", KEVAL_FAKE_NVML, 1);
    setenv("KEVAL_FAKE_NVML_STATE", state_.c_str(), 1);
  }
  void TearDown() override {
    for (const char* name : {"KEVAL_NVML_LIBRARY", "KEVAL_FAKE_NVML_STATE", "KEVAL_FAKE_NVML_DENY"}) unsetenv(name);
  }

  // What the devices were told, a line each.
  std::string Told() const {
    std::ifstream file(state_);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  bool Recorded() const { return std::filesystem::exists(absl::StrCat(dir_.path(), "/clock_lock.", kIdle)); }

  const testing::TempDir dir_;
  const std::string state_ = dir_.path() + "/fake_nvml_state";
  const std::string locked_ = absl::StrCat("lock ", kIdle, " 1200\n");
  const std::string unlocked_ = absl::StrCat("unlock ", kIdle, " 0\n");
};

TEST_F(ClockLockTest, LocksAndGivesBack) {
  {
    const auto lock = ClockLock::Take(kIdle, 1200, dir_.path(), "owner");
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_EQ(Told(), locked_);
    EXPECT_TRUE(Recorded());
  }
  EXPECT_EQ(Told(), locked_ + unlocked_);
  EXPECT_FALSE(Recorded());
}

TEST_F(ClockLockTest, WhatAKilledProcessLeftIsGivenBackAtTheNextStart) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = ClockLock::Take(kIdle, 1200, dir_.path(), "owner");
    const char byte = lock.ok() ? '1' : '0';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    pause();
    _exit(1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, '1');
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  close(ready[0]);
  close(ready[1]);
  ASSERT_EQ(Told(), locked_);
  ASSERT_TRUE(Recorded());

  EXPECT_TRUE(RestoreClocks(dir_.path()).ok());
  EXPECT_EQ(Told(), locked_ + unlocked_);
  EXPECT_FALSE(Recorded());
  EXPECT_TRUE(RestoreClocks(dir_.path()).ok());
  EXPECT_EQ(Told(), locked_ + unlocked_);  // Once.
}

TEST_F(ClockLockTest, OneIsRestoredForItsOwnerAlone) {
  const auto lock = ClockLock::Take(kIdle, 1200, dir_.path(), "owner");
  ASSERT_TRUE(lock.ok()) << lock.status();
  for (const char* const other : {"another", "own", "owner2", ""}) {
    EXPECT_TRUE(RestoreClock(dir_.path(), kIdle, other).ok());
    EXPECT_EQ(Told(), locked_) << other;
  }
  EXPECT_TRUE(Recorded());
  EXPECT_TRUE(RestoreClock(dir_.path(), kIdle, "owner").ok());
  EXPECT_EQ(Told(), locked_ + unlocked_);
  EXPECT_FALSE(Recorded());
  EXPECT_TRUE(RestoreClock(dir_.path(), kIdle, "owner").ok());
  EXPECT_EQ(Told(), locked_ + unlocked_);  // Once.
}

// Between its look at the record and its word to the driver nobody else may take or give back.
TEST_F(ClockLockTest, OneProcessAtATimeTouchesRecordAndClock) {
  std::ofstream(absl::StrCat(dir_.path(), "/clock_lock.", kIdle)) << "1200\nowner one\n";
  const int folder = open(dir_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(folder, LOCK_EX), 0);
  std::thread restores([this] { EXPECT_TRUE(RestoreClock(dir_.path(), kIdle, "one").ok()); });
  std::thread restores_all([this] { EXPECT_TRUE(RestoreClocks(dir_.path()).ok()); });
  std::thread takes([this] { EXPECT_TRUE(ClockLock::Take(kIdle, 1200, dir_.path(), "two").ok()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(Told(), "");
  close(folder);
  restores.join();
  restores_all.join();
  takes.join();
  EXPECT_NE(Told(), "");
}

TEST_F(ClockLockTest, ASharedDeviceIsLeftAsItIs) {
  const auto lock = ClockLock::Take(kShared, 1200, dir_.path(), "owner");
  EXPECT_EQ(lock.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(lock.status().message()), HasSubstr("39 other process(es)"));
  EXPECT_EQ(Told(), "");
}

TEST_F(ClockLockTest, ASplitDeviceIsLeftAsItIs) {
  const auto lock = ClockLock::Take(kSplit, 1200, dir_.path(), "owner");
  EXPECT_EQ(lock.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(lock.status().message()), HasSubstr("MIG"));
  EXPECT_EQ(Told(), "");
}

TEST_F(ClockLockTest, WithoutPermissionNothingIsRecorded) {
  setenv("KEVAL_FAKE_NVML_DENY", "1", 1);
  const auto lock = ClockLock::Take(kIdle, 1200, dir_.path(), "owner");
  EXPECT_EQ(lock.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(lock.status().message()), HasSubstr("Insufficient Permissions"));
  EXPECT_FALSE(Recorded());
}

TEST_F(ClockLockTest, ARestoringThatFailsIsToldAndTriedAgainAtTheNextStart) {
  std::ofstream(absl::StrCat(dir_.path(), "/clock_lock.", kIdle)) << "1200";
  setenv("KEVAL_FAKE_NVML_DENY", "1", 1);
  EXPECT_THAT(std::string(RestoreClocks(dir_.path()).message()), HasSubstr("Insufficient Permissions"));
  EXPECT_TRUE(Recorded());
  unsetenv("KEVAL_FAKE_NVML_DENY");
  EXPECT_TRUE(RestoreClocks(dir_.path()).ok());
  EXPECT_FALSE(Recorded());
}

TEST_F(ClockLockTest, OtherFilesAndAMissingFolderAreNoRecords) {
  std::ofstream(dir_.path() + "/jobs.db") << "x";
  std::ofstream(dir_.path() + "/clock_lock.;rm -rf") << "x";
  EXPECT_TRUE(RestoreClocks(dir_.path()).ok());
  EXPECT_TRUE(RestoreClocks(dir_.path() + "/missing").ok());
  EXPECT_EQ(Told(), "");
}

TEST_F(ClockLockTest, AFolderThatCantBeWrittenLeavesTheClockAlone) {
  const auto lock = ClockLock::Take(kIdle, 1200, dir_.path() + "/missing", "owner");
  EXPECT_FALSE(lock.ok());
  EXPECT_EQ(Told(), "");
}

}  // namespace
}  // namespace keval::measure
