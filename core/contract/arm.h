// One arm of a contract check: runs its variant and keeps all that came of it. Internal to core/contract.
#ifndef KEVAL_CORE_CONTRACT_ARM_H_
#define KEVAL_CORE_CONTRACT_ARM_H_

#include <cstdint>
#include <string>

#include "base/running.h"
#include "core/contract/cases.h"
#include "core/contract/op_trace.h"
#include "core/linear_logp/variant.h"

namespace keval::contract {

// What one call came to. Exactly one of these holds: the variant declined the input (`declined` says why), it failed
// (`error`), or the rest is set. Tensors are on the host.
struct Outcome {
  std::string declined;
  std::string error;
  at::Tensor logp;
  linear_logp::Gradients gradients;
  linear_logp::Dispatch forward_dispatch;
  linear_logp::Dispatch backward_dispatch;
  OpList forward_ops;
  OpList backward_ops;
  std::string changed_input;      // Name of an input that the call wrote to; it was restored.
  bool changed_autocast = false;  // The call left the thread's autocast state another than it found.

  bool Ran() const { return declined.empty() && error.empty(); }
};

// Waits for all that the device was given, on every stream. Throws linear_logp::Stopped where nothing that runs on it
// after that says anything about a variant: ABORTED where its context is poisoned, UNAVAILABLE where it is lost itself.
void StopIfLost(const linear_logp::Device& device);

// Owner: one contract check; used by its thread alone. The variant outlives it.
class Arm {
 public:
  // `index`: 0 for base, 1 for candidate. `running` outlives the arm.
  Arm(int index, const linear_logp::Variant* variant, linear_logp::Device device, linear_logp::ContinueCheck check,
      RunningMark* running);

  int index() const { return index_; }
  const linear_logp::Device& device() const { return device_; }
  const char* name() const { return index_ == 0 ? "base" : "candidate"; }
  const linear_logp::VariantDescription& description() const { return description_; }
  // The case's, naming this arm's variant.
  linear_logp::Options OptionsOf(const Case& test_case) const;
  bool Claims(linear_logp::ProductionPath path) const { return description_.production_path == path; }
  bool ClaimsAnyPath() const { return !Claims(linear_logp::ProductionPath::kNone); }

  // What `call`, which runs code of the variant and gives tensors, gives: marked as the arm's until the device is
  // through with it.
  template <typename Call>
  auto Marked(const Call& call) const {
    const RunningScope running(running_, Runs());
    auto result = call(*variant_);
    StopIfLost(device_);
    return result;
  }
  std::int64_t ScratchBytes(const Case& test_case) const;

  // Forward and Backward under the case's autocast. What the variant throws becomes `error`; throws only
  // linear_logp::Stopped, when the caller is to stop: also for want of memory (RESOURCE_EXHAUSTED) and a lost device
  // (UNAVAILABLE), which another time may not find.
  Outcome Run(const Case& test_case, linear_logp::Want want = {}) const;
  // The same for a device too full for a trace and copies: outputs stay on the device, nothing is recorded.
  Outcome RunLarge(const Case& test_case) const;

 private:
  // `call` under the guards above; fills `outcome->error`.
  template <typename Call>
  void Guard(Outcome* outcome, const Call& call) const;
  bool Declines(const Case& test_case, Outcome* outcome) const;
  Running Runs() const { return index_ == 0 ? Running::kBase : Running::kArm; }

  int index_;
  const linear_logp::Variant* variant_;
  linear_logp::VariantDescription description_;
  linear_logp::Device device_;
  linear_logp::ContinueCheck check_;
  RunningMark* running_;
};

}  // namespace keval::contract

#endif  // KEVAL_CORE_CONTRACT_ARM_H_
