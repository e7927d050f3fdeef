// The inputs that the contract is checked on, generated from a seed. Internal to core/contract.
#ifndef KEVAL_CORE_CONTRACT_CASES_H_
#define KEVAL_CORE_CONTRACT_CASES_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/linear_logp/variant.h"

namespace keval::contract {

struct Case {
  std::string name;                   // "plain_bias".
  linear_logp::VariantInputs inputs;  // On the device under test.
  linear_logp::Options options;       // All but the variant.
  linear_logp::Problem problem;

  // "bfloat16/plain_bias"; with autocast "bfloat16+autocast(float16)/...", with float32 gradients
  // "bfloat16->float32/...".
  std::string Label() const;
  std::int64_t Tokens() const { return problem.num_tokens; }
  std::int64_t Width() const { return problem.hidden_size; }
  std::int64_t Words() const { return problem.vocab_size; }
};

// Sizes and chunking of a case; the values are random and well scaled (logits of a few units).
struct CaseShape {
  std::int64_t num_tokens = 23;
  std::int64_t hidden_size = 16;
  std::int64_t vocab_size = 67;
  std::int64_t chunk_tokens = 5;  // 0: chunk_elems is less than V, so that a chunk is one token (P1).
  bool bias = true;
};

c10::DeviceType TorchDeviceType(const linear_logp::Device& device);
at::Device TorchDevice(const linear_logp::Device& device);

// Sets problem.num_tokens and the like from case.inputs, after a change of shapes.
void Describe(Case* test_case);

// The same seed and name give the same values on every device, and the values that float32 rounds to in 16 bits.
// Not thread-safe.
class CaseMaker {
 public:
  CaseMaker(std::uint64_t seed, linear_logp::Device device) : seed_(seed), device_(device) {}

  std::uint64_t seed() const { return seed_; }
  const linear_logp::Device& device() const { return device_; }

  // float32, bfloat16 and float16, and on a CPU float64.
  std::vector<DType> DTypes() const;
  // One well scaled case.
  Case Plain(DType dtype, const CaseShape& shape = {}, const std::string& name = "plain") const;
  // Every kind of finite input that an ordinary call may have (see kKinds in cases.cc).
  std::vector<Case> Standard(DType dtype) const;
  Case Standard(DType dtype, const std::string& name) const;

 private:
  std::uint64_t seed_;
  linear_logp::Device device_;
};

}  // namespace keval::contract

#endif  // KEVAL_CORE_CONTRACT_CASES_H_
