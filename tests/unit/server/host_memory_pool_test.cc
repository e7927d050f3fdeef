#include "server/host_memory_pool.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include <gtest/gtest.h>

#include "absl/time/clock.h"

namespace keval::server {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TEST(HostMemoryPoolTest, GivesTheSameMemoryAgain) {
  HostMemoryPool pool(64 * kMiB);
  HostMemoryPool::Block block = pool.Take(3 * kMiB);
  ASSERT_NE(block.memory, nullptr);
  EXPECT_EQ(block.size, 4 * kMiB);
  const std::byte* const memory = block.memory.get();
  pool.Give(std::move(block));
  EXPECT_EQ(pool.kept_bytes(), 4 * kMiB);
  EXPECT_EQ(pool.Take(4 * kMiB).memory.get(), memory);
  EXPECT_EQ(pool.kept_bytes(), 0);
}

TEST(HostMemoryPoolTest, AMisfitIsGivenUpForWhatIsNewlyTaken) {
  HostMemoryPool pool(64 * kMiB);
  pool.Give(pool.Take(32 * kMiB));
  pool.Give(pool.Take(32 * kMiB));
  EXPECT_EQ(pool.kept_bytes(), 32 * kMiB);
  EXPECT_EQ(pool.Take(16 * kMiB).size, 16 * kMiB);  // Half as large: the rest of a block would lie idle.
  EXPECT_EQ(pool.kept_bytes(), 0);
}

TEST(HostMemoryPoolTest, KeepsNoMoreThanItMay) {
  HostMemoryPool pool(10 * kMiB);
  HostMemoryPool::Block first = pool.Take(8 * kMiB);
  HostMemoryPool::Block second = pool.Take(4 * kMiB);
  pool.Give(std::move(first));
  pool.Give(std::move(second));
  EXPECT_EQ(pool.kept_bytes(), 8 * kMiB);
}

TEST(HostMemoryPoolTest, SmallMemoryIsTheAllocators) {
  HostMemoryPool pool(64 * kMiB);
  HostMemoryPool::Block none = pool.Take(0);
  EXPECT_NE(none.memory, nullptr);
  pool.Give(std::move(none));
  pool.Give(pool.Take(kMiB));
  EXPECT_EQ(pool.kept_bytes(), 0);
}

TEST(HostMemoryPoolTest, WhatNobodyTakesGoesBackToTheSystem) {
  HostMemoryPool pool(64 * kMiB);
  pool.Give(pool.Take(8 * kMiB));
  pool.DropOlderThan(absl::Now() - absl::Minutes(1));
  EXPECT_EQ(pool.kept_bytes(), 8 * kMiB);
  pool.DropOlderThan(absl::Now() + absl::Seconds(1));
  EXPECT_EQ(pool.kept_bytes(), 0);
}

}  // namespace
}  // namespace keval::server
