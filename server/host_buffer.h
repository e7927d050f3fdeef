// Host memory for one tensor's bytes.
#ifndef KEVAL_SERVER_HOST_BUFFER_H_
#define KEVAL_SERVER_HOST_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/byte_budget.h"

namespace keval::server {

// 64-byte aligned, not initialised; pages that are never written cost nothing. Holds the reservation that its bytes
// were admitted under, so that a budget counts a tensor for as long as anything still reads it. Not thread-safe while
// written.
class HostBuffer {
 public:
  // RESOURCE_EXHAUSTED where the allocator refuses. `bytes` >= 0.
  static absl::StatusOr<std::shared_ptr<HostBuffer>> Allocate(std::int64_t bytes, ByteBudget::Reservation reservation);

  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer() = default;

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };

  HostBuffer(std::byte* data, std::int64_t size, ByteBudget::Reservation reservation);

  const ByteBudget::Reservation reservation_;
  const std::unique_ptr<std::byte, Free> data_;
  const std::int64_t size_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_HOST_BUFFER_H_
