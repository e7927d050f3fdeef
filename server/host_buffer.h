// Host memory for one tensor's bytes.
#ifndef KEVAL_SERVER_HOST_BUFFER_H_
#define KEVAL_SERVER_HOST_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/byte_budget.h"
#include "server/host_memory_pool.h"

namespace keval::server {

// 64-byte aligned, with whatever contents; pages that are never written cost nothing. Holds the reservation that its
// bytes were admitted under, so that a budget counts a tensor for as long as anything still reads it. Not thread-safe
// while written.
class HostBuffer {
 public:
  // RESOURCE_EXHAUSTED where the allocator refuses. `bytes` >= 0. The memory comes from `pool` and goes back to it.
  static absl::StatusOr<std::shared_ptr<HostBuffer>> Allocate(const std::shared_ptr<HostMemoryPool>& pool,
                                                              std::int64_t bytes,
                                                              std::vector<ByteBudget::Reservation> reservations);

  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer() { pool_->Give(std::move(block_)); }

  std::byte* data() { return block_.memory.get(); }  // NOLINT(readability-make-member-function-const)
  const std::byte* data() const { return block_.memory.get(); }
  std::int64_t size() const { return size_; }

 private:
  HostBuffer(std::shared_ptr<HostMemoryPool> pool, HostMemoryPool::Block block, std::int64_t size,
             std::vector<ByteBudget::Reservation> reservations);

  const std::vector<ByteBudget::Reservation> reservations_;
  const std::shared_ptr<HostMemoryPool> pool_;
  HostMemoryPool::Block block_;
  const std::int64_t size_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_HOST_BUFFER_H_
