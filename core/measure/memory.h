// The incremental peak of a call: the most bytes that torch's allocator had handed out during it, less those just
// before it. Scratch that libraries take elsewhere (oneDNN on a CPU) is not seen, and the report says so.
#ifndef KEVAL_CORE_MEASURE_MEMORY_H_
#define KEVAL_CORE_MEASURE_MEMORY_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/measure/device_session.h"

namespace keval::measure {

// Runs `call` and returns its incremental peak in bytes, results that are still held included. On a GPU the allocator's
// statistics are reset first; call it after a warm-up, which the libraries' workspaces are charged to. On a CPU exact
// for tensors allocated on this thread; freeing what was held before is not seen, so drop earlier results first.
// Returns `call`'s status where that is not OK.
absl::StatusOr<std::int64_t> IncrementalPeakBytes(const DeviceSession& session,
                                                  const std::function<absl::Status()>& call);

// Bytes that the process holds on the device by now; on a CPU its resident set.
std::int64_t HeldBytes(const DeviceSession& session);

// Bytes of the device's memory that nobody holds now; on a CPU what the host and its control groups still give this
// process. nullopt: unknown.
std::optional<std::int64_t> FreeBytes(const DeviceSession& session);

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_MEMORY_H_
