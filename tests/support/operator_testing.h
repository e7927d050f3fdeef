// What the operator's tests share. They run on one device, which each test program names by defining TestDeviceName():
// the same sources make the CPU program and the GPU program.
#ifndef KEVAL_TESTS_SUPPORT_OPERATOR_TESTING_H_
#define KEVAL_TESTS_SUPPORT_OPERATOR_TESTING_H_

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/linear_logp/engine.h"
#include "core/linear_logp/reference.h"
#include "core/linear_logp/variant.h"
#include "tests/support/linear_logp_cases.h"

namespace keval::test_support {

// "cpu" or "cuda:0"; defined once in each test program.
const char* TestDeviceName();

linear_logp::Device TestDevice();
c10::Device TestTorchDevice();

// Skips where the program's device isn't here, and sets the numeric switches that an engine sets.
class OperatorTest : public ::testing::Test {
 protected:
  void SetUp() override;
};

// OperatorTest with an engine of one thread on that device.
class EngineOperatorTest : public OperatorTest {
 protected:
  void SetUp() override;

  std::unique_ptr<linear_logp::Engine> engine_;
};

// Dtypes that the device takes.
std::vector<at::ScalarType> OperandTypes();

extern const char* const kBase;
extern const char* const kCandidate;
extern const std::vector<std::string> kVariants;  // Those two and materialized.
const linear_logp::Variant& GetVariant(const std::string& name);

// A problem as host values, with what is right for them.
struct Sample {
  std::string name;
  linear_logp::ReferenceInputs values;
  linear_logp::ReferenceResult want;
};

// `values` as `type` holds them, and the reference of exactly these.
Sample MakeSample(const std::string& name, const linear_logp::ReferenceInputs& values, at::ScalarType type);

linear_logp::ReferenceInputs ValuesOf(const LinearLogpCase& numeric_case);

// Every case of tests/cases, rounded to `type`.
std::vector<Sample> CaseSamples(at::ScalarType type);

// Seeded values that are exact in every floating dtype; logits have a standard deviation near 2 whatever `hidden_size`.
linear_logp::ReferenceInputs SeededValues(std::int64_t num_tokens, std::int64_t hidden_size, std::int64_t vocab_size,
                                          bool with_bias, std::uint64_t seed);

// N 300, D 96, V 5000 with bias: larger than one chunk of each test's chunk_elems, and no multiple of any tile.
const Sample& LargerSample();

// On the test's device; `values` rounded to `type`.
linear_logp::VariantInputs ToInputs(const linear_logp::ReferenceInputs& values, at::ScalarType type);

struct Result {
  at::Tensor logp;
  linear_logp::Gradients gradients;
  linear_logp::Dispatch dispatch;
};

// Forward and backward under options.autocast.
Result Compute(const std::string& variant, const linear_logp::VariantInputs& inputs,
               const linear_logp::Options& options = {}, linear_logp::Want want = {},
               const linear_logp::ContinueCheck& check = nullptr);

std::vector<double> Values(const at::Tensor& tensor);  // As float64, flattened.

// The same dtype, shape and bits; NaNs with equal bits count as equal (used for one variant against itself).
bool SameBits(const at::Tensor& a, const at::Tensor& b);

// C2: |error of logp| and Frobenius error of each gradient there is, against `sample`, for operands of `type`.
// Row by row for grad_hidden (C14). Non-finite logp must be the same non-finite number.
void ExpectC2(const Sample& sample, const Result& result, at::ScalarType type);

// How often each operator ("aten::mm") was called while `work` ran, on this thread or on autograd's for it.
std::map<std::string, int> CountOps(const std::function<void()>& work);

// Sizes in bytes of every tensor allocation on this thread while `work` ran.
std::vector<std::int64_t> Allocations(const std::function<void()>& work);

// The most bytes of tensors on this thread at one time while `work` ran, beyond those there were before.
std::int64_t PeakBytes(const std::function<void()>& work);

// SHA-256 over the bits of logp and every gradient there is.
std::string Digest(const Result& result);

}  // namespace keval::test_support

#endif  // KEVAL_TESTS_SUPPORT_OPERATOR_TESTING_H_
