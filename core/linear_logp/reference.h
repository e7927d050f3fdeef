// The float64 reference of C2: plain loops over host values, sharing no operator with any variant, so that a fault
// can't be in both. Slow (5 N D V multiply-adds on one thread): for tests and the contract's checks.
#ifndef KEVAL_CORE_LINEAR_LOGP_REFERENCE_H_
#define KEVAL_CORE_LINEAR_LOGP_REFERENCE_H_

#include <cstdint>
#include <optional>
#include <vector>

namespace keval::linear_logp {

// Row-major values, as the variant under test sees them (bfloat16 values widened, not the numbers they came from).
struct ReferenceInputs {
  std::int64_t num_tokens = 0;
  std::int64_t hidden_size = 0;
  std::int64_t vocab_size = 0;
  std::vector<double> hidden;               // [N, D]
  std::vector<double> weight;               // [V, D]
  std::optional<std::vector<double>> bias;  // [V]
  std::vector<std::int64_t> targets;        // [N], each in [0, V).
  std::vector<double> grad_logp;            // [N]
};

// With M = |grad_logp| (onehot + softmax), the magnitudes that are really summed: S = M . |weight|, M^T . |hidden|,
// sum of M over tokens.
struct ReferenceResult {
  std::vector<double> logp;             // [N]
  std::vector<double> grad_hidden;      // [N, D]
  std::vector<double> grad_weight;      // [V, D]
  std::vector<double> grad_bias;        // [V], with or without a bias.
  std::vector<double> summed_hidden;    // S of grad_hidden.
  std::vector<double> summed_weight;    // S of grad_weight.
  std::vector<double> summed_bias;      // S of grad_bias.
  std::vector<double> target_shortage;  // [N]: 1 - p of the target, as the sum of the other words' p (C14).
  double max_abs_logit = 0;             // Over finite logits; 0 where there is none.
};

// REQUIRES: sizes of the vectors as said above; hidden_size and vocab_size at least 1.
ReferenceResult ComputeReference(const ReferenceInputs& inputs);

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_REFERENCE_H_
