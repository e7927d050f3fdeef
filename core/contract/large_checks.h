// C12: offsets past 2^31 elements. Internal to core/contract.
#ifndef KEVAL_CORE_CONTRACT_LARGE_CHECKS_H_
#define KEVAL_CORE_CONTRACT_LARGE_CHECKS_H_

#include "core/contract/evidence.h"

namespace keval::contract {

// Runs the arm on a bfloat16 problem of that shape and judges every logp, and rows of grad_hidden and grad_weight from
// the first to the last, by C2 against a float64 computation on the same device, done in slices of half a GiB. The
// arithmetic doesn't depend on the size, so that tests show it on small shapes.
void JudgeLargeShape(const Evidence& evidence, const Arm& arm, const CaseShape& shape, Tally* tally);

}  // namespace keval::contract

#endif  // KEVAL_CORE_CONTRACT_LARGE_CHECKS_H_
