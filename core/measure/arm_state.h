// What an arm is made of, for arm.cc and arm_verifier.cc. Torch types: only core/ includes this.
#ifndef KEVAL_CORE_MEASURE_ARM_STATE_H_
#define KEVAL_CORE_MEASURE_ARM_STATE_H_

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "core/linear_logp/variant.h"
#include "core/measure/arm.h"
#include "core/measure/delay.h"
#include "core/measure/device_session.h"
#include "core/measure/inputs.h"
#include "core/measure/results.h"
#include "core/measure/weight_gradient.h"

namespace keval::measure {

struct ArmState {
  ArmSpec spec;
  const DeviceSession* session = nullptr;
  const linear_logp::Variant* variant = nullptr;
  linear_logp::Problem problem;
  linear_logp::Options options;
  Region region = Region::kForwardBackward;
  std::optional<InputValues> inputs;
  std::optional<WeightGradientWork> weight_gradient;
  std::unique_ptr<Delay> delay;    // Null: none.
  Results results;                 // Of the last call.
  linear_logp::Dispatch dispatch;  // Of the last call.

  // Queues one call of `which` in the arm's region. Leaves the session marked as running that variant: the caller takes
  // the mark back once it has awaited the call. Errors as Arm's.
  absl::Status Call(const linear_logp::Variant& which, linear_logp::Dispatch* told, Results* out);
};

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_ARM_STATE_H_
