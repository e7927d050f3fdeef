#include "base/suggestion.h"

#include <string>

#include <gtest/gtest.h>

namespace keval {
namespace {

TEST(SuggestionTest, NamesTheNearestWordThatIsNear) {
  EXPECT_EQ(Suggestion("rn", {"list", "run"}), "; did you mean run?");
  EXPECT_EQ(Suggestion("--num_tokns", {"--num_rounds", "--num_tokens"}), "; did you mean --num_tokens?");
  EXPECT_EQ(Suggestion("frobnicate", {"list", "run"}), "");
  EXPECT_EQ(Suggestion("run", {}), "");
  EXPECT_EQ(Suggestion(std::string(100, 'r'), {std::string(100, 'r')}), "");  // Nobody's slip, and quadratic work.
}

}  // namespace
}  // namespace keval
