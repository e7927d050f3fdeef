// Whether an arm's results are what they must be, and by what name if not. Torch types: only core/ includes this.
#ifndef KEVAL_CORE_MEASURE_ARM_VERIFIER_H_
#define KEVAL_CORE_MEASURE_ARM_VERIFIER_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/linear_logp/numerics.h"
#include "core/linear_logp/variant.h"
#include "core/measure/arm_state.h"
#include "core/measure/inputs.h"
#include "core/measure/results.h"
#include "core/measure/wrong_result.h"

namespace keval::measure {

// Remembers what an arm gave for either set of inputs before its blocks, and holds each call of a block to it. Used by
// the arm's one thread; the arm's state outlives it. Every call may throw c10::Error; besides, errors as Arm's, and
// DATA_LOSS with its kind.
class ArmVerifier {
 public:
  explicit ArmVerifier(ArmState* arm) : arm_(*arm) {}

  // Forgets all.
  void Reset();

  // Calls `base` and then the arm over the present set, as it is, compares them, and remembers. Base is called in every
  // arm's process, in base's own too, so that all allocators have the same past: what was freed before decides the page
  // faults of every later call.
  absl::Status PrepareSet(const linear_logp::Variant& base);

  // The other set; varied, where it was prepared.
  absl::Status NextInputs();

  // The last call's results are the prepared ones, but for what Vary changed about the inputs, and not an earlier
  // call's. They are read before anything waits for other streams; then all that the call queued is awaited and the
  // session's mark taken back. REQUIRES PrepareSet of both sets, NextInputs, then the arm's call.
  absl::Status Verify();

 private:
  // What PrepareSet saw.
  struct Expected {
    InputDigests inputs{};
    Digests results{};  // As they came.
    Digests unified{};  // After Unify.
    at::Tensor logp_of_free_tokens;
  };

  absl::Status Error(WrongResult kind, absl::string_view text) const;
  absl::Status MemoryError(WrongResult kind) const;
  absl::Status CachedError(absl::string_view result) const;
  absl::Status UnfinishedError(absl::string_view result) const;
  absl::Status NothingElseChanged() const;
  absl::Status Settled(std::size_t which, const Digests& digests) const;
  absl::Status AwaitAll() const;
  at::Tensor FreeTokens() const;
  absl::StatusOr<bool> IsEarlierLogp(const Expected& before);
  absl::StatusOr<WrongResult> MemoryFault(const Digests& digests, const std::optional<Digests>& expected_digests);
  absl::StatusOr<WrongResult> MemoryFaultOfSet(const Digests& expected_digests);
  absl::Status Explain(std::size_t which, const Results& base, const Digests& digests, WrongResult otherwise,
                       const std::string& why);
  absl::Status ExplainTimed(std::size_t which, const Digests& digests);

  ArmState& arm_;
  linear_logp::Numerics numerics_;                     // Of the process, before the arm ran.
  std::array<std::optional<Expected>, 2> expected_{};  // By set.
  linear_logp::Dispatch expected_dispatch_;
  bool inputs_varied_ = false;
  InputDigests inputs_now_{};                        // Of the next call.
  std::unordered_set<std::uint64_t> earlier_logps_;  // Digests of those that no two calls may share.
};

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_ARM_VERIFIER_H_
