#include "core/linear_logp/chunk_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/field_error.h"
#include "base/shape.h"

namespace keval::linear_logp {
namespace {

constexpr absl::string_view kTooLarge = "small enough that element and byte counts stay below 2^63";

absl::Status CheckAtLeast(absl::string_view field, std::int64_t value, std::int64_t least) {
  if (value >= least) return absl::OkStatus();
  return InvalidField(field, absl::StrCat(value), absl::StrCat("at least ", least));
}

struct Size {
  absl::string_view field;
  std::int64_t value;
};

// Of two sizes whose product is too large.
absl::Status RefuseLarger(const Size& a, const Size& b) {
  const Size& larger = a.value > b.value ? a : b;
  return InvalidField(larger.field, absl::StrCat(larger.value), kTooLarge);
}

}  // namespace

absl::StatusOr<ChunkPlan> MakeChunkPlan(std::int64_t num_tokens, std::int64_t hidden_size, std::int64_t vocab_size,
                                        std::int64_t chunk_elems) {
  const std::pair<absl::string_view, std::pair<std::int64_t, std::int64_t>> limits[] = {
      {"num_tokens", {num_tokens, 0}},
      {"hidden_size", {hidden_size, 1}},
      {"vocab_size", {vocab_size, 1}},
      {"chunk_elems", {chunk_elems, 1}}};
  for (const auto& [field, value_and_least] : limits) {
    const absl::Status status = CheckAtLeast(field, value_and_least.first, value_and_least.second);
    if (!status.ok()) return status;
  }
  const Size tokens = {"num_tokens", num_tokens};
  const Size width = {"hidden_size", hidden_size};
  const Size words = {"vocab_size", vocab_size};
  if (!CheckedMultiply(num_tokens, hidden_size)) return RefuseLarger(tokens, width);
  if (!CheckedMultiply(num_tokens, vocab_size)) return RefuseLarger(tokens, words);

  ChunkPlan plan;
  plan.chunk_tokens = std::max<std::int64_t>(1, std::min(num_tokens, chunk_elems / vocab_size));
  plan.chunks = num_tokens / plan.chunk_tokens + (num_tokens % plan.chunk_tokens != 0 ? 1 : 0);
  const std::optional<std::int64_t> table_elements = CheckedMultiply(vocab_size, hidden_size);
  // 4VD for the zeroed table, then 16VD (base) or 8VD (candidate) a chunk: all are multiples of 4VD.
  const std::optional<std::int64_t> table_bytes = table_elements ? CheckedMultiply(*table_elements, 4) : std::nullopt;
  const std::int64_t least_tables = num_tokens == 0 ? 1 : 5;
  if (!table_bytes || !CheckedMultiply(*table_bytes, least_tables)) return RefuseLarger(width, words);
  const std::optional<std::int64_t> base_tables =
      plan.chunks > (INT64_MAX - 1) / 4 ? std::nullopt : std::optional<std::int64_t>(1 + 4 * plan.chunks);
  const std::optional<std::int64_t> base_bytes =
      base_tables ? CheckedMultiply(*table_bytes, *base_tables) : std::nullopt;
  if (!base_bytes) return InvalidField("num_tokens", absl::StrCat(num_tokens), kTooLarge);
  plan.base_bytes = *base_bytes;
  plan.saving_bytes = 2 * plan.chunks * *table_bytes;
  plan.candidate_bytes = plan.base_bytes - plan.saving_bytes;
  plan.add_ops_saved = plan.chunks;
  return plan;
}

}  // namespace keval::linear_logp
