// Variants that break the contract on purpose, one line each. Tests only.
#ifndef KEVAL_TESTS_UNIT_CONTRACT_FAULTY_VARIANTS_H_
#define KEVAL_TESTS_UNIT_CONTRACT_FAULTY_VARIANTS_H_

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/linear_logp/variant.h"

namespace keval::contract {

// What a faulty variant does around a production path: every hook may be empty.
struct Fault {
  std::string name;
  std::string row;  // The line of the contract that it breaks.
  std::string arm = "candidate";
  // The path that it wraps, and runs but for the hooks.
  std::string inner = "portable_addmm";
  std::function<void(linear_logp::VariantInputs*, linear_logp::Options*, linear_logp::Want*)> before;
  std::function<void(const linear_logp::VariantInputs&, at::Tensor* logp)> after_forward;
  std::function<void(const linear_logp::VariantInputs&, const linear_logp::Options&, linear_logp::Gradients*)>
      after_backward;
  std::function<void(linear_logp::Dispatch*)> dispatch;
  std::function<void(linear_logp::VariantDescription*)> describe;
  bool declines = false;  // Every input.

  friend std::ostream& operator<<(std::ostream& out, const Fault& fault) { return out << fault.name; }
};

// Named `fault.name`.
std::unique_ptr<linear_logp::Variant> MakeFaulty(const Fault& fault);

// At least one for every line that a CPU shows; C12's stands alone, see contract_fault_test.cc.
const std::vector<Fault>& Faults();

}  // namespace keval::contract

#endif  // KEVAL_TESTS_UNIT_CONTRACT_FAULTY_VARIANTS_H_
