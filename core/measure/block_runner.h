// A block: an arm's discarded and timed repetitions in a row.
#ifndef KEVAL_CORE_MEASURE_BLOCK_RUNNER_H_
#define KEVAL_CORE_MEASURE_BLOCK_RUNNER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/measure/arm.h"
#include "core/measure/device_session.h"

namespace keval::measure {

struct BlockRequest {
  int discarded_repetitions = 2;
  int timed_repetitions = 5;
};

struct BlockResult {
  std::vector<std::int64_t> ns;  // One for each timed repetition, > 0.
  DeviceReading before;
  DeviceReading after;
  std::uint64_t reasons_between = 0;  // Of throttling after one of its repetitions, or by the device's own account.
};

// Whether the device was slowed, at either edge or at a moment between, so that the block's times are unfit.
bool WasThrottled(const BlockResult& block);

// Each repetition: other input values, the cache overwritten, the queue drained; then the timer around the arm's call
// alone; then its results verified (Arm::VerifyAndPoison), so that no call of a block can be skipped unseen. The device
// is read before the first and after the last, its throttle reasons after each. REQUIRES arm->Prepare. Errors: Arm's.
absl::StatusOr<BlockResult> RunBlock(const BlockRequest& request, const DeviceSession& session, Arm* arm);

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_BLOCK_RUNNER_H_
