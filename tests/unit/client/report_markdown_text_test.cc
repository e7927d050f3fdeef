#include "client/report/markdown_text.h"

#include <gtest/gtest.h>

namespace keval::report {
namespace {

TEST(CodeSpan, KeepsPlainText) {
  EXPECT_EQ(CodeSpan("4096x2048x32768/bfloat16/bias"), "`4096x2048x32768/bfloat16/bias`");
}

TEST(CodeSpan, FencesBackticks) {
  EXPECT_EQ(CodeSpan("a`b"), "``a`b``");
  EXPECT_EQ(CodeSpan("a``b`c"), "```a``b`c```");
  EXPECT_EQ(CodeSpan("`"), "`` ` ``");
  EXPECT_EQ(CodeSpan(" a "), "`  a  `");
}

TEST(CodeSpan, EscapesPipesForTables) {
  EXPECT_EQ(CodeSpan("a|b"), "`a\\|b`");
  // "\|" can't be told apart from an escaped pipe there, so the pipe is shown by its number.
  EXPECT_EQ(CodeSpan("a\\|b"), "`a\\\\u007Cb`");
}

TEST(CodeSpan, StaysOnOneLine) {
  EXPECT_EQ(CodeSpan("tab\tand\nnewline"), "`tab\\u0009and\\u000Anewline`");
  EXPECT_EQ(CodeSpan("\x1B[31m"), "`\\u001B[31m`");
}

TEST(CodeSpan, ShowsNothingAsAbsent) {
  EXPECT_EQ(CodeSpan(""), "–");
  EXPECT_EQ(CodeSpan("  "), "–");
}

TEST(Table, WritesHeadingsAndRows) {
  Table table({"a", "b"});
  EXPECT_EQ(table.Text(), "");
  table.Add({"1", "2"});
  EXPECT_EQ(table.Text(), "| a | b |\n| --- | --- |\n| 1 | 2 |\n\n");
}

}  // namespace
}  // namespace keval::report
