// Fresh memory with known contents, to see whether a result depends on it. Torch-free.
#ifndef KEVAL_CORE_MEASURE_FRESH_MEMORY_H_
#define KEVAL_CORE_MEASURE_FRESH_MEMORY_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/measure/device_session.h"

namespace keval::measure {

// Every byte that torch hands out while a FreshMemoryFill lives: finite in each floating type (0.75 in float32), so
// that a sum that starts from it differs from memory that was never written.
inline constexpr std::uint8_t kFreshByte = 0x3f;

// Every tensor that torch allocates is filled, on any thread, what a call frees and takes again too. On a GPU by a
// tracker that the caching allocator calls; it can't be taken off again, so from the first fill on each allocation of
// the process also asks whether to fill: some 0.1 us on the host, for every arm alike. Never alive in a timed call.
// Used by the session's one thread; one at a time.
class FreshMemoryFill {
 public:
  // Errors of a GPU's allocator.
  static absl::StatusOr<std::unique_ptr<FreshMemoryFill>> Begin(const DeviceSession& session);
  ~FreshMemoryFill();
  FreshMemoryFill(const FreshMemoryFill&) = delete;
  FreshMemoryFill& operator=(const FreshMemoryFill&) = delete;

 private:
  explicit FreshMemoryFill(bool on_cpu);
  bool on_cpu_;
};

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_FRESH_MEMORY_H_
