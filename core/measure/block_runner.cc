#include "core/measure/block_runner.h"

namespace keval::measure {
namespace {

absl::StatusOr<std::int64_t> TimeOneCall(const DeviceSession& session, Arm* arm) {
  absl::Status status = arm->NextInputs();
  if (status.ok()) {
    status = session.flush().Run();
  }
  if (status.ok()) {
    status = session.Synchronize();
  }
  if (status.ok()) {
    status = session.timer().Start();
  }
  if (status.ok()) {
    status = arm->Run();
  }
  if (!status.ok()) {
    return status;
  }
  return session.timer().StopNs();
}

}  // namespace

bool WasThrottled(const BlockResult& block) {
  return IsThrottled(block.before.throttle_reasons) || IsThrottled(block.after.throttle_reasons) ||
         IsThrottled(block.reasons_between);
}

absl::StatusOr<BlockResult> RunBlock(const BlockRequest& request, const DeviceSession& session, Arm* arm) {
  BlockResult result;
  result.ns.reserve(static_cast<std::size_t>(request.timed_repetitions));
  result.before = session.Read();
  const int repetitions = request.discarded_repetitions + request.timed_repetitions;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    absl::StatusOr<std::int64_t> ns = TimeOneCall(session, arm);
    if (!ns.ok()) {
      return ns.status();
    }
    if (repetition >= request.discarded_repetitions) {
      result.ns.push_back(*ns);
    }
    // At once: what another stream still has to write must not find the time.
    if (absl::Status status = arm->VerifyAndPoison(); !status.ok()) {
      return status;
    }
    result.reasons_between |= session.ThrottleReasons();
  }
  result.after = session.Read();
  result.reasons_between = ReasonsBetween(result.before, result.after, result.reasons_between);
  return result;
}

}  // namespace keval::measure
