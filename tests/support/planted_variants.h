// Variants with a planted fault, for the tests of what measures and runs variants. Never part of the product.
#ifndef KEVAL_TESTS_SUPPORT_PLANTED_VARIANTS_H_
#define KEVAL_TESTS_SUPPORT_PLANTED_VARIANTS_H_

#include <memory>
#include <vector>

#include "core/linear_logp/variant.h"

namespace keval::testing {

// All of them, registered for as long as the result lives. Each computes as portable_matmul_add does, except:
//   planted_right           nothing
//   planted_throws          Backward throws std::runtime_error
//   planted_aborts          Backward calls abort, saying "planted last words" on stderr
//   planted_aborts_late     as that, from the ninth call on
//   planted_segfaults       Backward raises SIGSEGV
//   planted_exits           Backward ends the process with code 7
//   planted_hangs           Backward never returns
//   planted_slow            Backward sleeps 30 ms
//   planted_out_of_memory   Backward asks for 2^50 bytes
//   planted_wrong           grad_weight is 0.1 % too large
//   planted_cached          every call returns copies of the first one's results
//   planted_skips_late      from the ninth call on grad_weight's memory is not written
//   planted_changes_inputs  the first element of hidden is changed
//   planted_changes_late    as that, from the ninth call on
//   planted_falls_back      Backward says that it fell back
//   planted_logs            Backward appends a line "PID num_tokens" to the file that KEVAL_PLANTED_LOG names
std::vector<std::unique_ptr<linear_logp::ScopedVariantForTest>> PlantVariants();

}  // namespace keval::testing

#endif  // KEVAL_TESTS_SUPPORT_PLANTED_VARIANTS_H_
