#include "core/measure/raw_memory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

namespace keval::measure {
namespace {

constexpr MemoryPlace kHost;

TEST(RawMemoryTest, NormalValuesHaveTheMomentsAskedFor) {
  constexpr int kCount = 200000;
  std::vector<float> values(kCount);
  ASSERT_TRUE(FillNormal(kHost, values.data(), DType::kFloat32, kCount, 7, 0, 0.25).ok());
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  // Standard errors: 0.25/sqrt(n) = 6e-4, and 0.25/sqrt(2n) = 4e-4; five of each.
  EXPECT_NEAR(sum / kCount, 0, 3e-3);
  EXPECT_NEAR(std::sqrt(squares / kCount), 0.25, 2e-3);
}

TEST(RawMemoryTest, AValueDependsOnSeedAndIndexAlone) {
  std::vector<float> whole(100);
  std::vector<float> part(30);
  std::vector<double> wide(100);
  ASSERT_TRUE(FillNormal(kHost, whole.data(), DType::kFloat32, 100, 3, 0, 1).ok());
  ASSERT_TRUE(FillNormal(kHost, part.data(), DType::kFloat32, 30, 3, 70, 1).ok());
  ASSERT_TRUE(FillNormal(kHost, wide.data(), DType::kFloat64, 100, 3, 0, 1).ok());
  EXPECT_EQ(std::vector<float>(whole.begin() + 70, whole.end()), part);
  EXPECT_EQ(std::vector<double>(whole.begin(), whole.end()), wide);
  ASSERT_TRUE(FillNormal(kHost, part.data(), DType::kFloat32, 30, 4, 70, 1).ok());
  EXPECT_NE(std::vector<float>(whole.begin() + 70, whole.end()), part);
}

TEST(RawMemoryTest, TargetsCoverTheirRange) {
  std::vector<std::int64_t> targets(1000);
  ASSERT_TRUE(FillTargets(kHost, targets.data(), 1000, 5, 7).ok());
  EXPECT_EQ(std::set<std::int64_t>(targets.begin(), targets.end()), (std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(RawMemoryTest, PoisonIsNanInEveryType) {
  std::vector<double> wide(2);
  std::vector<float> narrow(3);
  ASSERT_TRUE(Poison(kHost, wide.data(), 16).ok());
  ASSERT_TRUE(Poison(kHost, narrow.data(), 12).ok());
  EXPECT_TRUE(std::isnan(wide[1]));
  EXPECT_TRUE(std::isnan(narrow[2]));
}

TEST(RawMemoryTest, DigestSeesEveryBitAndPlace) {
  std::vector<std::uint64_t> words(9, 0);
  const auto digest = [&words](std::int64_t bytes) { return *Digest(kHost, words.data(), bytes); };
  std::set<std::uint64_t> seen;
  std::size_t expected = 0;
  for (std::size_t byte = 0; byte < 70; ++byte) {  // A length with a tail.
    for (int bit = 0; bit < 8; ++bit) {
      reinterpret_cast<unsigned char*>(words.data())[byte] ^= static_cast<unsigned char>(1 << bit);
      seen.insert(digest(70));
      ++expected;
      reinterpret_cast<unsigned char*>(words.data())[byte] ^= static_cast<unsigned char>(1 << bit);
    }
  }
  seen.insert(digest(70));
  EXPECT_EQ(seen.size(), expected + 1);
  EXPECT_EQ(digest(70), digest(70));
  words[8] |= std::uint64_t{1} << 63;  // Beyond the 70 bytes.
  EXPECT_EQ(seen.count(digest(70)), 1U);
}

TEST(RawMemoryTest, DigestTellsPlusFromMinusZero) {
  const float plus[2] = {0.0F, 0.0F};
  const float minus[2] = {0.0F, -0.0F};
  EXPECT_NE(*Digest(kHost, plus, 8), *Digest(kHost, minus, 8));
}

}  // namespace
}  // namespace keval::measure
