// Generated inputs of an arm. Torch types: only core/ includes this.
#ifndef KEVAL_CORE_MEASURE_INPUTS_H_
#define KEVAL_CORE_MEASURE_INPUTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

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
//
// Vary makes the values of one call its own, in a way that tells what the results must be then. A few tokens, the free
// ones, have an upstream gradient of 0 in both sets, so that their hidden rows enter no gradient; they get rows that no
// call had before. And all upstream gradients get a common sign, which all gradients then have.
class InputValues {
 public:
  // May throw c10::Error (out of memory). The session outlives it.
  static absl::StatusOr<InputValues> Create(const linear_logp::Problem& problem, std::uint64_t seed,
                                            const DeviceSession* session);

  // The other set, as it is; queued, not awaited.
  absl::Status Next();

  // The present set made one call's own; queued, not awaited.
  absl::Status Vary();
  // The present set as it is again; queued, not awaited.
  absl::Status Restore();

  // First and last token and one between them; none of fewer than 8 tokens.
  const std::vector<std::int64_t>& free_tokens() const { return free_tokens_; }
  // -1 or 1: what the upstream gradients are multiplied by at present.
  int sign() const { return sign_; }

  const linear_logp::VariantInputs& tensors() const { return tensors_; }
  int set() const { return set_; }
  std::int64_t bytes() const;

  // Of every bit of every input, 0 for an absent one; waits.
  absl::StatusOr<InputDigests> Digest() const;
  // The same where `others`, of the present set as it is, hold for what Vary doesn't touch.
  absl::StatusOr<InputDigests> DigestVaried(const InputDigests& others) const;

 private:
  InputValues(const linear_logp::Problem& problem, std::uint64_t seed, const DeviceSession* session)
      : problem_(problem), seed_(seed), session_(session) {}

  // Everything in which the sets differ.
  absl::Status FillSet();
  absl::Status FillUpstream();
  std::uint64_t SeedFor(std::uint64_t purpose) const;
  absl::StatusOr<std::uint64_t> DigestOne(std::size_t input) const;

  linear_logp::Problem problem_;
  std::uint64_t seed_;
  const DeviceSession* session_;
  linear_logp::VariantInputs tensors_;
  int set_ = 1;
  int sign_ = 1;
  std::vector<std::int64_t> free_tokens_;
  std::uint64_t variations_ = 0;
};

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_INPUTS_H_
