// Host memory that was used before, kept for the next tensor.
#ifndef KEVAL_SERVER_HOST_MEMORY_POOL_H_
#define KEVAL_SERVER_HOST_MEMORY_POOL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "base/large_memory.h"
#include "base/mutex.h"

namespace keval::server {

// Memory that has been touched receives several times as fast as fresh pages do. Kept memory belongs to nobody, so it
// counts in no budget: at most `max_kept_bytes` of it, and what nobody took for a while goes back to the system.
// Thread-safe; owned by everybody who holds memory of it.
class HostMemoryPool {
 public:
  explicit HostMemoryPool(std::int64_t max_kept_bytes) : max_kept_bytes_(max_kept_bytes) {}

  struct Block {
    LargeMemory memory;  // Null: the allocator refused.
    std::int64_t size = 0;
  };
  // At least `bytes` bytes, with whatever contents. Where nothing that is kept fits, as much of it is given up as is
  // newly taken, so that the process does not grow by misfits.
  Block Take(std::int64_t bytes);
  void Give(Block block);

  // Gives up what has been kept since before `time`.
  void DropOlderThan(absl::Time time);

  std::int64_t kept_bytes() const;

 private:
  struct Kept {
    LargeMemory memory;
    absl::Time since;
  };
  using KeptBySize = std::multimap<std::int64_t, Kept>;

  // The oldest first, until `bytes` bytes are dropped or none is left. What was dropped, to be freed outside the lock.
  std::vector<LargeMemory> TakeOldest(std::int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::int64_t max_kept_bytes_;
  mutable Mutex mutex_;
  KeptBySize kept_ ABSL_GUARDED_BY(mutex_);
  std::int64_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_HOST_MEMORY_POOL_H_
