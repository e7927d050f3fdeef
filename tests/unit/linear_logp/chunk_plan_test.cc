// P1 and the static traffic model.
#include "core/linear_logp/chunk_plan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "base/field_error.h"

namespace keval::linear_logp {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

std::string RefusedField(std::int64_t tokens, std::int64_t width, std::int64_t words, std::int64_t elems) {
  const auto plan = MakeChunkPlan(tokens, width, words, elems);
  if (plan.ok()) return "accepted";
  if (plan.status().code() != absl::StatusCode::kInvalidArgument) return plan.status().ToString();
  return GetFieldViolation(plan.status()).value_or(FieldViolation{}).field;
}

TEST(ChunkPlanTest, TheSeedsShapeSavesFourGibibytesAndEightAdditions) {
  const auto plan = MakeChunkPlan(4096, 2048, 32768);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->chunk_tokens, 512);
  EXPECT_EQ(plan->chunks, 8);
  EXPECT_EQ(plan->saving_bytes, std::int64_t{4} << 30);
  EXPECT_EQ(plan->base_bytes, std::int64_t{4} * 32768 * 2048 * (1 + 4 * 8));
  EXPECT_EQ(plan->candidate_bytes, std::int64_t{4} * 32768 * 2048 * (1 + 2 * 8));
  EXPECT_EQ(plan->add_ops_saved, 8);
}

TEST(ChunkPlanTest, P1ChunksCoverAllTokensAndHoldAtLeastOne) {
  struct Row {
    std::int64_t tokens, words, elems, chunk_tokens, chunks;
  };
  for (const Row& row : {Row{10, 7, 21, 3, 4}, Row{10, 7, 20, 2, 5}, Row{10, 7, 6, 1, 10}, Row{10, 7, 1000, 10, 1},
                         Row{10, 7, 70, 10, 1}, Row{1, 1, 1, 1, 1}, Row{0, 7, 21, 1, 0}, Row{9, 7, 21, 3, 3}}) {
    const auto plan = MakeChunkPlan(row.tokens, 5, row.words, row.elems);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->chunk_tokens, row.chunk_tokens) << row.tokens << " tokens, " << row.elems << " elements";
    EXPECT_EQ(plan->chunks, row.chunks) << row.tokens << " tokens, " << row.elems << " elements";
  }
}

TEST(ChunkPlanTest, NoTokensStillCountTheZeroedTable) {
  const auto plan = MakeChunkPlan(0, 8, 17);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->base_bytes, 4 * 17 * 8);
  EXPECT_EQ(plan->candidate_bytes, 4 * 17 * 8);
  EXPECT_EQ(plan->saving_bytes, 0);
}

TEST(ChunkPlanTest, RefusesByFieldWhatIsOutOfRangeOrOverflows) {
  EXPECT_EQ(RefusedField(-1, 8, 17, 100), "num_tokens");
  EXPECT_EQ(RefusedField(4, 0, 17, 100), "hidden_size");
  EXPECT_EQ(RefusedField(4, 8, 0, 100), "vocab_size");
  EXPECT_EQ(RefusedField(4, 8, 17, 0), "chunk_elems");
  EXPECT_EQ(RefusedField(kMax, 2, 17, 100), "num_tokens");
  EXPECT_EQ(RefusedField(2, kMax, 17, 100), "hidden_size");
  // One token is not what is too much.
  EXPECT_EQ(RefusedField(1, std::int64_t{1} << 30, std::int64_t{1} << 30, 1 << 24), "vocab_size");
  EXPECT_EQ(RefusedField(1, std::int64_t{1} << 40, std::int64_t{1} << 20, 1 << 24), "hidden_size");
  EXPECT_EQ(RefusedField(4, std::int64_t{1} << 32, std::int64_t{1} << 32, 100), "vocab_size");
  EXPECT_EQ(RefusedField(1, std::int64_t{1} << 31, std::int64_t{1} << 31, 100), "vocab_size");
  EXPECT_EQ(RefusedField(kMax, 1, 2, 100), "num_tokens");
  EXPECT_EQ(RefusedField(kMax, 1, 1, 1), "num_tokens");
  EXPECT_EQ(RefusedField(4, 8, 17, kMax), "accepted");
}

}  // namespace
}  // namespace keval::linear_logp
