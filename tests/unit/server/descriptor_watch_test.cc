#include "server/descriptor_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <vector>

namespace keval::server {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

TEST(DescriptorWatchTest, CountsWhatIsOpen) {
  const DescriptorUse before = ReadDescriptorUse();
  EXPECT_GE(before.open, 3);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(before.limit, static_cast<std::int64_t>(limit.rlim_cur));
  std::vector<int> opened;
  for (int i = 0; i < 10; ++i) opened.push_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(ReadDescriptorUse().open, before.open + 10);
  for (const int fd : opened) close(fd);
  EXPECT_EQ(ReadDescriptorUse().open, before.open);
}

TEST(DescriptorWatchTest, WarnsFromFourFifthsOnAndOnceAMinute) {
  DescriptorWatch watch;
  const steady_clock::time_point now = steady_clock::now();
  EXPECT_FALSE(watch.Due({799, 1000}, now));
  EXPECT_TRUE(watch.Due({800, 1000}, now));
  EXPECT_FALSE(watch.Due({1000, 1000}, now + seconds(59)));
  EXPECT_TRUE(watch.Due({1000, 1000}, now + seconds(60)));
}

TEST(DescriptorWatchTest, WhatCannotBeToldIsNoWarning) {
  DescriptorWatch watch;
  EXPECT_FALSE(watch.Due({0, 0}, steady_clock::now()));
  EXPECT_FALSE(watch.Due({0, 1024}, steady_clock::now()));
}

}  // namespace
}  // namespace keval::server
