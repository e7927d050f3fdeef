#include "core/contract/evidence.h"

#include <cstddef>
#include <string>
#include <utility>

#include "core/contract/accuracy.h"
#include "core/contract/agreement.h"

namespace keval::contract {
namespace {

using linear_logp::Autocast;
using linear_logp::GradDtype;

void Add(Evidence* evidence, Case test_case) {
  Sample sample;
  sample.truth = TruthOf(test_case);
  for (const Arm& arm : evidence->arms) {
    sample.outcomes[static_cast<std::size_t>(arm.index())] = arm.Run(test_case);
  }
  sample.test_case = std::move(test_case);
  evidence->samples.push_back(std::move(sample));
}

}  // namespace

void Gather(Evidence* evidence) {
  const CaseMaker& maker = evidence->maker;
  for (const DType dtype : maker.DTypes()) {
    for (Case& test_case : maker.Standard(dtype)) Add(evidence, std::move(test_case));
  }
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const char* name : {"plain_bias", "larger", "common_offset", "nearly_certain_target", "zero_upstream"}) {
      Case test_case = maker.Standard(dtype, name);
      test_case.options.grad_dtype = GradDtype::kFloat32;
      Add(evidence, std::move(test_case));
    }
  }
  for (const Autocast autocast : {Autocast::kBFloat16, Autocast::kFloat16}) {
    for (const DType dtype : maker.DTypes()) {
      for (const char* name : {"plain_bias", "plain_no_bias", "larger", "zero_upstream"}) {
        Case test_case = maker.Standard(dtype, name);
        test_case.options.autocast = autocast;
        Add(evidence, std::move(test_case));
      }
    }
  }
}

bool Usable(const Case& test_case, const Outcome& outcome, Tally* tally) {
  if (!outcome.declined.empty()) {
    tally->Note(outcome.declined);
  } else if (!outcome.error.empty()) {
    tally->Fail(test_case.Label(), outcome.error);
  }
  return outcome.Ran();
}

std::int64_t CountDifferentResults(const Outcome& a, const Outcome& b) {
  return CountDifferent(a.logp, b.logp) + CountDifferent(a.gradients.grad_hidden, b.gradients.grad_hidden) +
         CountDifferent(a.gradients.grad_weight, b.gradients.grad_weight) +
         CountDifferent(a.gradients.grad_bias, b.gradients.grad_bias);
}

}  // namespace keval::contract
