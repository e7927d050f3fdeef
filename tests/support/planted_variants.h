// Variants with a planted fault, for the tests of what measures and runs variants. Never part of the product.
#ifndef KEVAL_TESTS_SUPPORT_PLANTED_VARIANTS_H_
#define KEVAL_TESTS_SUPPORT_PLANTED_VARIANTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/linear_logp/variant.h"

namespace keval::testing {

// The vocabulary by which the sly ones know that they are measured and not checked: no case of the contract has it.
inline constexpr std::int64_t kSlyVocabSize = 331;

// A call of a planted variant's Backward, after the right one.
struct Call {
  int number;  // From 1.
  const linear_logp::VariantInputs& inputs;
  const std::function<linear_logp::Gradients(const linear_logp::VariantInputs&)>& right;
  linear_logp::Gradients* gradients;
  linear_logp::Dispatch* dispatch;  // May be null.
};
using Fault = std::function<void(const Call&)>;
using LogpFault = std::function<void(const linear_logp::VariantInputs&, at::Tensor*)>;

// portable_matmul_add with `fault` after each backward and `logp_fault`, if any, after each forward; `only_vocab_size`
// 0: for every vocabulary. Registered as `name` for as long as the result lives.
std::unique_ptr<linear_logp::ScopedVariantForTest> Plant(std::string name, Fault fault, LogpFault logp_fault = nullptr,
                                                         std::int64_t only_vocab_size = 0);

// planted_partly_written and planted_recycled, on any device.
void WritePartly(const Call& call);
void AddFreshMemory(const Call& call);

// All of them, registered for as long as the result lives. Each computes as portable_matmul_add does, except:
//   planted_right             nothing
// Accidents:
//   planted_throws            Backward throws std::runtime_error
//   planted_aborts            Backward calls abort, saying "planted last words" on stderr
//   planted_aborts_late       as that, from the ninth call on
//   planted_segfaults         Backward raises SIGSEGV
//   planted_exits             Backward ends the process with code 7
//   planted_awaits_killer     Backward appends a line "PID" to the file that KEVAL_PLANTED_LOG names, and never returns
//   planted_leaves_helper     Backward ends the process with code 7; a child lives on with all its descriptors
//   planted_hangs             Backward never returns; it logs as planted_logs does
//   planted_hangs_late        as that, from the ninth call on
//   planted_slow              Backward sleeps 30 ms; it logs as planted_logs does
//   planted_out_of_memory     Backward asks for 2^50 bytes
//   planted_illegal_access    Backward throws what torch throws after an illegal access on a GPU
//   planted_loses_device      Backward throws what torch throws when a GPU is gone
//   planted_falls_back        Backward says that it fell back
//   planted_falls_back_late   as that, from the ninth call on
//   planted_logs              Backward appends a line "PID num_tokens BYTES WEIGHT" to that file, if any is named,
//   BYTES
//                             being resident in the other children of the process's parent, WEIGHT a hash of the
//                             beginning of the weight
// Cheats, and what flatters by accident:
//   planted_wrong             grad_weight is 0.1 % too large, before it is rounded
//   planted_nan               grad_weight is NaN throughout
//   planted_wrong_shape       grad_weight is transposed
//   planted_wrong_dtype       grad_weight is float64
//   planted_cached            every call returns copies of the first one's results
//   planted_memoises          gradients are computed once for each sum of the targets, then copied
//   planted_memoises_logp     so is logp
//   planted_skips_late        from the ninth call on grad_weight is zero
//   planted_skips_most        as that, but every seventh call computes
//   planted_not_repeatable    grad_weight grows by its last bits from call to call
//   planted_partly_written    the last rows of grad_weight's memory are not written
//   planted_recycled          what fresh memory holds is added to grad_weight
//   planted_unfinished        grad_weight is written by a thread 100 ms after Backward returned
//   planted_rounded           hidden and weight are rounded to TF32's 10 bits first
//   planted_changes_precision TF32 products are allowed in the whole process
//   planted_changes_inputs    the first element of hidden is changed
//   planted_changes_late      as that, from the ninth call on
// Each is there once more as planted_sly_…: right unless the vocabulary has kSlyVocabSize words, so that it passes the
// contract check; as planted_foreign_…, which claims no production path, planted_foreign_right too; and as
// planted_sly_foreign_…. And those that are right, and by whose names the planted worker (planted_harness.h) harms
// itself:
//   planted_harness_crashes, planted_harness_hangs, planted_harness_out_of_memory, planted_harness_babbles: keval's own
//   code in the worker does that; planted_harness_crashes_in_contract: between two rows of the contract check;
//   planted_throttled: the worker says that each block of it was throttled.
std::vector<std::unique_ptr<linear_logp::ScopedVariantForTest>> PlantVariants();

}  // namespace keval::testing

#endif  // KEVAL_TESTS_SUPPORT_PLANTED_VARIANTS_H_
