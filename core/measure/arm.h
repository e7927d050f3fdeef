// A variant at work on one shape: what the timer times.
#ifndef KEVAL_CORE_MEASURE_ARM_H_
#define KEVAL_CORE_MEASURE_ARM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/linear_logp/engine.h"
#include "core/linear_logp/problem.h"
#include "core/measure/device_session.h"

namespace keval::measure {

// What of a call is run.
enum class Region : std::uint8_t {
  kForwardBackward,
  kBackward,
  // The weight gradient's accumulation alone, over every chunk: `table += matmul(left, right).float()` or
  // `table.addmm_(left, right)`, zeroing of the table included. Only where the variant is one of the two production
  // paths.
  kWeightGradient,
};

struct ArmSpec {
  std::string variant;
  std::int64_t num_tokens = 0;
  std::int64_t hidden_size = 0;
  std::int64_t vocab_size = 0;
  DType dtype = DType::kFloat32;
  bool bias = false;
  linear_logp::Autocast autocast = linear_logp::Autocast::kNone;
  std::int64_t chunk_elems = 0;  // 0: the default.
  bool force_variant = false;
  std::optional<double> delay_fraction;  // Each call has a Delay of it.
};

// Owns inputs and the last call's results on the session's device. Every call on the session's thread; the session
// outlives it.
//
// There are two sets of input values, equal in size, both a pure function of the seed: calls alternate between them, so
// that a result kept from an earlier call is a wrong one. Both have hidden ~ N(0, 1), logits with a standard deviation
// of about 2, upstream ~ N(0, 1); they differ in hidden, bias, upstream, targets and a slice of weight's rows.
//
// Errors of every call: RESOURCE_EXHAUSTED (out of memory), ABORTED (poisoned device context), UNAVAILABLE (device
// lost), INTERNAL (the variant threw anything else).
class Arm {
 public:
  // Allocates and fills the inputs. Also INVALID_ARGUMENT (unknown variant, refused shape) and FAILED_PRECONDITION (the
  // variant declines).
  static absl::StatusOr<std::unique_ptr<Arm>> Create(const ArmSpec& spec, std::uint64_t input_seed,
                                                     const DeviceSession* session);
  ~Arm();
  Arm(const Arm&) = delete;
  Arm& operator=(const Arm&) = delete;

  // Runs `base_variant`, the arm's own one or not, and then the arm over both sets of values; remembers the digests of
  // the arm's results after comparing them with base's (C1 between the two production paths; a wide distance
  // otherwise). Runs the arm once more over memory filled with something else. Serves as the warm-up too. DATA_LOSS
  // with its kind (wrong_result.h) where they disagree, aren't a function of the inputs, or something else was changed.
  absl::Status Prepare(const std::string& base_variant, Region region);

  // Puts the other set of values into the inputs. After Prepare they are varied as well, so that no two calls have the
  // same ones: a few tokens without part in any gradient get hidden rows of their own, and all upstream gradients one
  // sign (InputValues). Never timed.
  absl::Status NextInputs();

  // Queues one call, with the delay where the spec has one; its results replace the last ones. This is what is timed.
  // The session stays marked as running the arm: the caller, who waits, marks its end.
  absl::Status Run();

  // DATA_LOSS with its kind (wrong_result.h) unless the last results are bit for bit those of Prepare, but for that
  // sign and for the logp of those tokens, which no call before had, the path was the same, and inputs and precision
  // settings are unchanged. Awaits all that the call queued, on other streams too, and ends the session's mark. Then
  // overwrites the results with NaN and lets go of them, so that memory they return to holds nothing right. REQUIRES
  // Prepare, then Run.
  absl::Status VerifyAndPoison();

  // Results and their memory, dropped.
  void DropResults();

  const linear_logp::Dispatch& dispatch() const;
  std::int64_t input_bytes() const;

 private:
  struct State;
  explicit Arm(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_ARM_H_
