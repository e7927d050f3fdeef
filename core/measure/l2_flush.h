// A cold and equal start for every timed call: what the device's last-level cache held is pushed out.
#ifndef KEVAL_CORE_MEASURE_L2_FLUSH_H_
#define KEVAL_CORE_MEASURE_L2_FLUSH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/measure/raw_memory.h"

namespace keval::measure {

// Owns a buffer as large as the device's L2, outside torch's allocator (so that peaks don't count it). On a CPU there
// is no overwrite, and Description says so. Thread-compatible.
class L2Flush {
 public:
  // REQUIRES on a GPU: the device is current on the calling thread. RESOURCE_EXHAUSTED where the buffer can't be had.
  static absl::StatusOr<std::unique_ptr<L2Flush>> Create(MemoryPlace place);

  // Queues the overwrite of the buffer; nothing on a CPU.
  absl::Status Run() const;

  // Bytes overwritten; 0 on a CPU.
  std::int64_t bytes() const { return bytes_; }
  // For the report.
  std::string Description() const;

 private:
  struct Free {
    void operator()(void* buffer) const;
  };
  using Buffer = std::unique_ptr<void, Free>;  // Device memory.
  L2Flush(MemoryPlace place, Buffer buffer, std::int64_t bytes)
      : place_(place), buffer_(std::move(buffer)), bytes_(bytes) {}

  MemoryPlace place_;
  Buffer buffer_;
  std::int64_t bytes_;
};

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_L2_FLUSH_H_
