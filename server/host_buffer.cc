#include "server/host_buffer.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace keval::server {

HostBuffer::HostBuffer(std::shared_ptr<HostMemoryPool> pool, HostMemoryPool::Block block, std::int64_t size,
                       std::vector<ByteBudget::Reservation> reservations)
    : reservations_(std::move(reservations)), pool_(std::move(pool)), block_(std::move(block)), size_(size) {}

absl::StatusOr<std::shared_ptr<HostBuffer>> HostBuffer::Allocate(const std::shared_ptr<HostMemoryPool>& pool,
                                                                 std::int64_t bytes,
                                                                 std::vector<ByteBudget::Reservation> reservations) {
  HostMemoryPool::Block block = pool->Take(bytes);
  if (block.memory == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("host memory: ", bytes, " bytes could not be allocated"));
  }
  return std::shared_ptr<HostBuffer>(
      absl::WrapUnique(new HostBuffer(pool, std::move(block), bytes, std::move(reservations))));
}

}  // namespace keval::server
