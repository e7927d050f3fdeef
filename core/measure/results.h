// What one call of an arm gives, and how it is looked at. Torch types: only core/ includes this.
#ifndef KEVAL_CORE_MEASURE_RESULTS_H_
#define KEVAL_CORE_MEASURE_RESULTS_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/linear_logp/engine.h"
#include "core/measure/device_session.h"

namespace keval::measure {

inline constexpr std::size_t kResults = 4;
inline constexpr std::size_t kLogp = 0;
inline constexpr std::array<const char*, kResults> kResultNames = {"logp", "grad_hidden", "grad_weight", "grad_bias"};
using Results = std::array<at::Tensor, kResults>;  // Undefined where the call doesn't give one.
using Digests = std::array<std::uint64_t, kResults>;

// Of every bit of every result, in the order of the session's stream: work on other streams isn't awaited.
absl::StatusOr<Digests> DigestsOf(const DeviceSession& session, const Results& results);

// Brings results of inputs whose upstream gradients were multiplied by `sign` to what they are without it, and -0 to 0,
// in place where that can be. May throw c10::Error.
void Unify(int sign, Results* results);

// Overwrites the results' memory with NaN and drops them.
absl::Status PoisonAndDrop(const DeviceSession& session, Results* results);

// Where `own` is not what base computed from the same inputs: C1 between the two production paths, otherwise a distance
// that two right implementations may have (the contract is judged elsewhere); and between any two no more of it a
// multiple of base than rounding makes by chance. `autocast`: products are of 16 bits. Other types, shapes and
// non-finite elements never agree. May throw c10::Error.
struct Disagreement {
  std::size_t result = kResults;  // kResults: none.
  std::string why;
};
Disagreement Compare(const linear_logp::VariantDescription& base_is, const linear_logp::VariantDescription& own_is,
                     bool autocast, const Results& base, const Results& own);

// Whether the results change within a second after `digests` of them were taken; false at once where they can't.
absl::StatusOr<bool> StillChanging(const DeviceSession& session, const Results& results, const Digests& digests);

// Whether some four neighbouring elements hold nothing but `byte`. May throw c10::Error.
bool HoldsRunOf(std::uint8_t byte, const at::Tensor& result);

// Whether float32 `own` differs from `base` as products of operands with 7 to 11 bits do: nearly everywhere, by 2e-5 to
// 1e-2 of the whole, and not as a multiple of it. Looks at the first 4 Mi elements. May throw c10::Error.
bool LooksRounded(const at::Tensor& base, const at::Tensor& own);

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_RESULTS_H_
