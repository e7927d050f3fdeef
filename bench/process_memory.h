// The memory of another process, from /proc.
#ifndef KEVAL_BENCH_PROCESS_MEMORY_H_
#define KEVAL_BENCH_PROCESS_MEMORY_H_

#include <sys/types.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace keval::bench {

// Sets the peak to what is resident now. UNAVAILABLE where the system doesn't let us.
absl::Status ResetPeak(pid_t pid);

struct ResidentBytes {
  std::int64_t now = 0;
  std::int64_t peak = 0;  // Since ResetPeak.
};
absl::StatusOr<ResidentBytes> ReadResident(pid_t pid);

}  // namespace keval::bench

#endif  // KEVAL_BENCH_PROCESS_MEMORY_H_
