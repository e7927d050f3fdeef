// The float64 reference against the cases' own right values, which were computed elsewhere in closed form.
#include "core/linear_logp/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/operator_testing.h"

namespace keval::linear_logp {
namespace {

using test_support::LinearLogpCase;

void ExpectClose(const std::vector<double>& got, const std::vector<double>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isfinite(want[i])) {
      EXPECT_NEAR(got[i], want[i], 1e-11 * std::max(1.0, std::abs(want[i]))) << what << "[" << i << "]";
    } else {
      EXPECT_EQ(got[i], want[i]) << what << "[" << i << "]";
    }
  }
}

TEST(ReferenceTest, AgreesWithEveryCase) {
  const auto cases = test_support::LoadLinearLogpCases();
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_GE(cases->size(), 16U);
  for (const LinearLogpCase& numeric_case : *cases) {
    const ReferenceResult result = ComputeReference(test_support::ValuesOf(numeric_case));
    ExpectClose(result.logp, numeric_case.expected.logp, numeric_case.name + " logp");
    ExpectClose(result.grad_hidden, numeric_case.expected.grad_hidden, numeric_case.name + " grad_hidden");
    ExpectClose(result.grad_weight, numeric_case.expected.grad_weight, numeric_case.name + " grad_weight");
    if (numeric_case.expected.grad_bias) {
      ExpectClose(result.grad_bias, *numeric_case.expected.grad_bias, numeric_case.name + " grad_bias");
    }
  }
}

TEST(ReferenceTest, C2MagnitudesAreThoseThatAreSummed) {
  // One token, two words with logits ln 3 and 0: p = 3/4, 1/4; target 0; M = 2 (1 + 3/4, 1/4).
  const ReferenceInputs inputs = {.num_tokens = 1,
                                  .hidden_size = 1,
                                  .vocab_size = 2,
                                  .hidden = {-2},
                                  .weight = {-std::log(3.0) / 2, 0},
                                  .targets = {0},
                                  .grad_logp = {-2}};
  const ReferenceResult result = ComputeReference(inputs);
  EXPECT_NEAR(result.logp[0], std::log(0.75), 1e-15);
  EXPECT_NEAR(result.target_shortage[0], 0.25, 1e-15);
  EXPECT_NEAR(result.summed_bias[0], 3.5, 1e-15);
  EXPECT_NEAR(result.summed_bias[1], 0.5, 1e-15);
  EXPECT_NEAR(result.summed_weight[0], 7, 1e-14);
  EXPECT_NEAR(result.summed_hidden[0], 3.5 * std::log(3.0) / 2, 1e-15);
  EXPECT_NEAR(result.grad_bias[0], -0.5, 1e-15);
  EXPECT_NEAR(result.max_abs_logit, std::log(3.0), 1e-15);
}

TEST(ReferenceTest, AFullyMaskedVocabularyIsNaN) {
  const double infinity = std::numeric_limits<double>::infinity();
  const ReferenceResult result = ComputeReference({.num_tokens = 1,
                                                   .hidden_size = 1,
                                                   .vocab_size = 2,
                                                   .hidden = {1},
                                                   .weight = {1, 2},
                                                   .bias = std::vector<double>{-infinity, -infinity},
                                                   .targets = {0},
                                                   .grad_logp = {1}});
  EXPECT_TRUE(std::isnan(result.logp[0]));
}

}  // namespace
}  // namespace keval::linear_logp
