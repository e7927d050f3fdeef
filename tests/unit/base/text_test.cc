#include "base/text.h"

#include <gtest/gtest.h>

namespace keval {
namespace {

TEST(TextTest, ShowsControlCharactersVisibly) {
  EXPECT_EQ(PrintableText("red \x1b[31m"), "red \\u001B[31m");
  EXPECT_EQ(PrintableText(absl::string_view("nul \0 bell \a", 12)), "nul \\u0000 bell \\u0007");
  EXPECT_EQ(PrintableText("tab\tand\nnewline"), "tab\\u0009and\\u000Anewline");
  EXPECT_EQ(PrintableText("non \xEF\xBF\xBE"), "non \\uFFFE");
  EXPECT_EQ(PrintableText("c1 \xC2\x9B"), "c1 \\u009B");
}

TEST(TextTest, KeepsOrdinaryTextAndReplacesInvalidBytes) {
  EXPECT_EQ(PrintableText("rocket \xF0\x9F\x9A\x80 a < b & \"c\" ]]> d"),
            "rocket \xF0\x9F\x9A\x80 a < b & \"c\" ]]> d");
  EXPECT_EQ(PrintableText("\xFF"), "\xEF\xBF\xBD");
  EXPECT_EQ(PrintableText("\xC0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");  // Overlong NUL.
  EXPECT_EQ(PrintableText("\xE2\x82"), "\xEF\xBF\xBD\xEF\xBF\xBD");  // Cut off.
}

TEST(TextTest, CutsAtACharacter) { EXPECT_EQ(PrintableText("\xC3\xA4\xC3\xA4", 3), "\xC3\xA4\xE2\x80\xA6"); }

TEST(TextTest, TellsValidUtf8) {
  EXPECT_TRUE(IsValidUtf8(""));
  EXPECT_TRUE(IsValidUtf8(absl::string_view("control \x1b and nul \0", 18)));
  EXPECT_TRUE(IsValidUtf8("\xF0\x9F\x9A\x80"));
  EXPECT_FALSE(IsValidUtf8("ok \xFF"));
  EXPECT_FALSE(IsValidUtf8("\xE2\x82"));
}

TEST(TextTest, XmlTextKeepsWhatXmlHolds) {
  EXPECT_EQ(XmlText("tab\tnewline\nreturn\r a < b & \"c\" ]]> \xF0\x9F\x9A\x80"),
            "tab\tnewline\nreturn\r a < b & \"c\" ]]> \xF0\x9F\x9A\x80");
  EXPECT_EQ(XmlText("\xE2\x80\xAE"), "\xE2\x80\xAE");
  EXPECT_EQ(XmlText(absl::string_view("\x1B[m \0 \xEF\xBF\xBE \xFF", 11)), "\\u001B[m \\u0000 \\uFFFE \xEF\xBF\xBD");
}

}  // namespace
}  // namespace keval
