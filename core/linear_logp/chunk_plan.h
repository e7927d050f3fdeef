// How tokens are cut into chunks (P1), and the static traffic model of the weight-gradient table. Torch-free: the CLI's
// `keval plan` links it without a server.
#ifndef KEVAL_CORE_LINEAR_LOGP_CHUNK_PLAN_H_
#define KEVAL_CORE_LINEAR_LOGP_CHUNK_PLAN_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace keval::linear_logp {

inline constexpr std::int64_t kDefaultChunkElems = std::int64_t{1} << 24;

// chunk_tokens = max(1, min(N, floor(chunk_elems / V))); chunks = ceil(N / chunk_tokens), 0 for N = 0. The byte counts
// are logical: base 4VD + 16KVD, candidate 4VD + 8KVD, saving 8KVD; add_ops_saved = K.
struct ChunkPlan {
  std::int64_t chunk_tokens = 1;
  std::int64_t chunks = 0;
  std::int64_t base_bytes = 0;
  std::int64_t candidate_bytes = 0;
  std::int64_t saving_bytes = 0;
  std::int64_t add_ops_saved = 0;
};

// INVALID_ARGUMENT naming num_tokens (< 0), hidden_size (< 1), vocab_size (< 1), chunk_elems (< 1), or, where a product
// overflows int64, the larger of its two sizes; num_tokens where only the number of chunks is too large.
absl::StatusOr<ChunkPlan> MakeChunkPlan(std::int64_t num_tokens, std::int64_t hidden_size, std::int64_t vocab_size,
                                        std::int64_t chunk_elems = kDefaultChunkElems);

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_CHUNK_PLAN_H_
