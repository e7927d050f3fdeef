// Generated inputs of an arm. Torch types: only core/ includes this.
#ifndef KEVAL_CORE_MEASURE_INPUTS_H_
#define KEVAL_CORE_MEASURE_INPUTS_H_

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/linear_logp/problem.h"
#include "core/linear_logp/variant.h"
#include "core/measure/device_session.h"

namespace keval::measure {

inline constexpr std::array<const char*, 5> kInputNames = {"hidden", "weight", "bias", "targets", "grad_logp"};
using InputDigests = std::array<std::uint64_t, kInputNames.size()>;

// Two sets of values in the same tensors, one at a time: set 1 from Create, then Next alternates. A pure function of
// problem and seed, the same on every device. See Arm for the distributions.
class InputValues {
 public:
  // May throw c10::Error (out of memory). The session outlives it.
  static absl::StatusOr<InputValues> Create(const linear_logp::Problem& problem, std::uint64_t seed,
                                            const DeviceSession* session);

  // The other set; queued, not awaited.
  absl::Status Next();

  const linear_logp::VariantInputs& tensors() const { return tensors_; }
  int set() const { return set_; }
  std::int64_t bytes() const;

  // Of every bit of every input, 0 for an absent one; waits.
  absl::StatusOr<InputDigests> Digest() const;

 private:
  InputValues(const linear_logp::Problem& problem, std::uint64_t seed, const DeviceSession* session)
      : problem_(problem), seed_(seed), session_(session) {}

  // Everything in which the sets differ.
  absl::Status FillSet();

  linear_logp::Problem problem_;
  std::uint64_t seed_;
  const DeviceSession* session_;
  linear_logp::VariantInputs tensors_;
  int set_ = 1;
};

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_INPUTS_H_
