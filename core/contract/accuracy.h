// C2 and C14: a call's results against the float64 reference. Internal to core/contract.
#ifndef KEVAL_CORE_CONTRACT_ACCURACY_H_
#define KEVAL_CORE_CONTRACT_ACCURACY_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/contract/arm.h"
#include "core/contract/cases.h"
#include "core/contract/tally.h"
#include "core/linear_logp/reference.h"

namespace keval::contract {

// The right values of a case, as its dtype holds its inputs.
linear_logp::ReferenceResult TruthOf(const Case& test_case);

// Host copy as float64, row-major.
std::vector<double> Values(const at::Tensor& tensor);

// C2's epsilon: the portable paths', the variant's own, or autocast's.
double EpsilonOf(const Case& test_case, const linear_logp::VariantDescription& description, double max_abs_logit);

// C2's u: half a unit in the last place of a result's dtype, relative.
double RoundingUnit(at::ScalarType dtype);

// One unit in the last place of `magnitude` as float32, or float64, by the case's logits.
double LogitUlp(const Case& test_case, double magnitude);

// What C2 allows the error of logp.
double LogpLimit(const Case& test_case, const linear_logp::VariantDescription& description,
                 const linear_logp::ReferenceResult& truth);

// C2 for logp and every gradient that is there. Non-finite right values must be met exactly.
void JudgeAccuracy(const Case& test_case, const Outcome& outcome, const linear_logp::ReferenceResult& truth,
                   const linear_logp::VariantDescription& description, Tally* tally);

// C14 for each row of grad_hidden.
void JudgeRows(const Case& test_case, const Outcome& outcome, const linear_logp::ReferenceResult& truth,
               const linear_logp::VariantDescription& description, Tally* tally);

}  // namespace keval::contract

#endif  // KEVAL_CORE_CONTRACT_ACCURACY_H_
