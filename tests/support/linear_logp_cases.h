// The numeric cases of tests/cases (linear_logp/ and reports/): inputs exact in bfloat16, right values in float64.
#ifndef KEVAL_TESTS_SUPPORT_LINEAR_LOGP_CASES_H_
#define KEVAL_TESTS_SUPPORT_LINEAR_LOGP_CASES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace keval::test_support {

// Row-major values. "nan", "inf" and "-inf" of the files are those numbers here.
struct LinearLogpCase {
  std::string name;
  std::string note;
  std::int64_t num_tokens = 0;
  std::int64_t hidden_size = 0;
  std::int64_t vocab_size = 0;
  std::vector<double> hidden;               // [N, D]
  std::vector<double> weight;               // [V, D]
  std::optional<std::vector<double>> bias;  // [V]
  std::vector<std::int64_t> targets;        // [N]
  std::vector<double> grad_logp;            // [N]

  struct Expected {
    std::vector<double> logp;                      // [N]
    std::vector<double> grad_hidden;               // [N, D]
    std::vector<double> grad_weight;               // [V, D]
    std::optional<std::vector<double>> grad_bias;  // [V]
  };
  Expected expected;
};

// A change to plain_bias that must be refused.
struct InvalidInput {
  std::string name;
  std::string change;
  std::string field;
};

// `file`: relative to tests/cases, e.g. "linear_logp/plain_bias.json". INVALID_ARGUMENT naming file and key when it
// can't be read or a count of values doesn't match N, D and V.
absl::StatusOr<LinearLogpCase> LoadLinearLogpCase(absl::string_view file);

// Every numeric case of both folders, in a fixed order; fails as a whole when one can't be loaded.
absl::StatusOr<std::vector<LinearLogpCase>> LoadLinearLogpCases();

// linear_logp/invalid_inputs.json.
absl::StatusOr<std::vector<InvalidInput>> LoadInvalidInputs();

}  // namespace keval::test_support

#endif  // KEVAL_TESTS_SUPPORT_LINEAR_LOGP_CASES_H_
