#include "server/host_memory_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"

namespace keval::server {
namespace {
// Whole huge pages. Smaller memory is the allocator's business.
constexpr std::int64_t kGranule = std::int64_t{2} << 20;
}  // namespace

HostMemoryPool::Block HostMemoryPool::Take(std::int64_t bytes) {
  if (bytes < kGranule) return {AllocateLarge(static_cast<std::size_t>(bytes)), bytes};
  const std::int64_t size = bytes > INT64_MAX - kGranule ? bytes : (bytes + kGranule - 1) / kGranule * kGranule;
  std::vector<LargeMemory> dropped;  // Freed after the lock.
  {
    MutexLock lock(&mutex_);
    const auto it = kept_.lower_bound(size);
    if (it != kept_.end() && it->first - size <= size / 4) {
      Block block{std::move(it->second.memory), it->first};
      kept_bytes_ -= it->first;
      kept_.erase(it);
      return block;
    }
    dropped = TakeOldest(size);
  }
  dropped.clear();
  return {AllocateLarge(static_cast<std::size_t>(size)), size};
}

void HostMemoryPool::Give(Block block) {
  if (block.memory == nullptr || block.size < kGranule) return;
  MutexLock lock(&mutex_);
  if (block.size > max_kept_bytes_ - kept_bytes_) return;  // `block` goes after the lock: it is the caller's.
  kept_bytes_ += block.size;
  kept_.emplace(block.size, Kept{std::move(block.memory), absl::Now()});
}

std::vector<LargeMemory> HostMemoryPool::TakeOldest(std::int64_t bytes) {
  std::vector<LargeMemory> dropped;
  while (bytes > 0 && !kept_.empty()) {
    const auto oldest = std::min_element(kept_.begin(), kept_.end(),
                                         [](const auto& a, const auto& b) { return a.second.since < b.second.since; });
    bytes -= oldest->first;
    kept_bytes_ -= oldest->first;
    dropped.push_back(std::move(oldest->second.memory));
    kept_.erase(oldest);
  }
  return dropped;
}

void HostMemoryPool::DropOlderThan(absl::Time time) {
  std::vector<LargeMemory> dropped;  // Freed after the lock.
  MutexLock lock(&mutex_);
  for (auto it = kept_.begin(); it != kept_.end();) {
    if (it->second.since < time) {
      kept_bytes_ -= it->first;
      dropped.push_back(std::move(it->second.memory));
      it = kept_.erase(it);
    } else {
      ++it;
    }
  }
}

std::int64_t HostMemoryPool::kept_bytes() const {
  MutexLock lock(&mutex_);
  return kept_bytes_;
}

}  // namespace keval::server
