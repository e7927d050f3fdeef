#include "core/verdict/samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "base/field_error.h"
#include "tests/unit/verdict/verdict_testing.h"

namespace keval::verdict {
namespace {

using testing::HasSubstr;

const char kHeader[] = "series,role,round,quad,pos,arm,rep,ns,throttled\n";

// A valid quad of two repetitions: lines 2 to 9.
const std::vector<std::string> kQuad = {"s1,primary,0,0,0,A,0,100,0", "s1,primary,0,0,0,A,1,101,0",
                                        "s1,primary,0,0,1,B,0,90,0",  "s1,primary,0,0,1,B,1,91,0",
                                        "s1,primary,0,0,2,B,0,92,0",  "s1,primary,0,0,2,B,1,93,0",
                                        "s1,primary,0,0,3,A,0,99,0",  "s1,primary,0,0,3,A,1,98,0"};

std::string File(const std::vector<std::string>& rows) {
  std::string file = kHeader;
  for (const std::string& row : rows) file += row + "\n";
  return file;
}

// The valid file with row `index` (line index + 2) put in another's place; empty: left out.
std::string With(std::size_t index, const std::string& row) {
  std::vector<std::string> rows = kQuad;
  if (row.empty()) {
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(index));
  } else {
    rows.at(index) = row;
  }
  return File(rows);
}

TEST(ParseSamples, ReadsEveryColumn) {
  const auto samples = ParseSamples(With(2, "s1,primary,0,0,1,B,0,9007199254740993,1"));
  ASSERT_TRUE(samples.ok()) << samples.status();
  ASSERT_EQ(samples->size(), 8U);
  const Sample& sample = (*samples)[2];
  EXPECT_EQ(sample.series, "s1");
  EXPECT_EQ(sample.role, Role::kPrimary);
  EXPECT_EQ(sample.pos, 1);
  EXPECT_EQ(sample.arm, 'B');
  EXPECT_EQ(sample.rep, 0);
  EXPECT_EQ(sample.ns, 9007199254740993);
  EXPECT_TRUE(sample.throttled);
}

TEST(ParseSamples, NeedsNoNewlineAtTheEnd) {
  std::string file = File(kQuad);
  file.pop_back();
  EXPECT_TRUE(ParseSamples(file).ok());
}

TEST(ParseSamples, TakesQuotedFields) {
  std::vector<std::string> rows = kQuad;
  for (std::string& row : rows) row = "\"a, \"\"b\"\"\nc\"" + row.substr(2);
  const auto samples = ParseSamples(File(rows));
  ASSERT_TRUE(samples.ok()) << samples.status();
  EXPECT_EQ((*samples)[0].series, "a, \"b\"\nc");
  // The lines of a fault are those of the file: the third row begins at line 6.
  rows[2] = "\"a, \"\"b\"\"\nc\",primary,0,0,1,B,0,0,0";
  EXPECT_THAT(std::string(ParseSamples(File(rows)).status().message()), HasSubstr("line 6:"));
}

TEST(FormatSamples, IsReadBack) {
  std::vector<Sample> samples =
      MakeSamples({{.name = "plain", .values = {.01, .02}},
                   {.name = "a, \"b\"\nc\r\xF0\x9F\x9A\x80", .role = Role::kControl, .values = {0, 0}}});
  samples[3].throttled = true;
  const auto read = ParseSamples(FormatSamples(samples));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), samples.size());
  EXPECT_EQ(FormatSamples(*read), FormatSamples(samples));
  EXPECT_EQ(read->back().series, samples.back().series);
  EXPECT_TRUE((*read)[3].throttled);
}

TEST(FormatSamples, WritesTheTracesAsTheyWere) {
  const std::string csv = ReadCase("verdict/gain_3pct.csv");
  const auto samples = ParseSamples(csv);
  ASSERT_TRUE(samples.ok());
  EXPECT_EQ(FormatSamples(*samples), csv);
}

struct Malformed {
  std::string name;
  std::string file;
  std::string line;
  std::string says;
  // What a failure says, in place of its bytes.
  friend void PrintTo(const Malformed& malformed, std::ostream* out) { *out << malformed.name; }
};

class MalformedFile : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedFile, IsRefusedNamingTheLine) {
  const auto samples = ParseSamples(GetParam().file);
  EXPECT_EQ(samples.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(samples.status().message());
  EXPECT_THAT(message, HasSubstr(GetParam().line + ": "));
  EXPECT_THAT(message, HasSubstr(GetParam().says));
  const auto violation = GetFieldViolation(samples.status());
  ASSERT_TRUE(violation.has_value());
  EXPECT_EQ(violation->field, "samples");
  EXPECT_EQ(violation->value, GetParam().line);
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

INSTANTIATE_TEST_SUITE_P(
    All, MalformedFile,
    testing::Values(
        Malformed{"empty", "", "line 1", "empty"}, Malformed{"header_only", kHeader, "line 2", "no samples"},
        Malformed{"byte_order_mark", "\xEF\xBB\xBF" + File(kQuad), "line 1", "byte order mark"},
        Malformed{"crlf_in_header", Replaced(File(kQuad), "throttled\n", "throttled\r\n"), "line 1", "CRLF"},
        Malformed{"crlf_in_row", Replaced(File(kQuad), "91,0\n", "91,0\r\n"), "line 5", "CRLF"},
        Malformed{"crlf_behind_quotes", Replaced(File(kQuad), "91,0\n", "91,\"0\"\r\n"), "line 5", "CRLF"},
        Malformed{"unknown_column", Replaced(File(kQuad), "throttled", "hot"), "line 1", "unknown column \"hot\""},
        Malformed{"missing_column", Replaced(File(kQuad), ",throttled", ""), "line 1", "\"throttled\" is missing"},
        Malformed{"column_order", Replaced(File(kQuad), "round,quad", "quad,round"), "line 1", "in this order"},
        Malformed{"too_few_fields", With(3, "s1,primary,0,0,1,B,1,91"), "line 5", "8 fields"},
        Malformed{"too_many_fields", With(3, "s1,primary,0,0,1,B,1,91,0,0"), "line 5", "10 fields"},
        Malformed{"empty_line", Replaced(File(kQuad), "91,0\n", "91,0\n\n"), "line 6", "empty line"},
        Malformed{"unknown_role", With(3, "s1,headline,0,0,1,B,1,91,0"), "line 5", "unknown role \"headline\""},
        Malformed{"diagnostic", With(3, "s1,diagnostic,0,0,1,B,1,91,0"), "line 5", "diagnostics never decide"},
        Malformed{"two_roles", With(3, "s1,guard,0,0,1,B,1,91,0"), "line 5", "role guard here and primary before"},
        Malformed{"no_name", With(3, ",primary,0,0,1,B,1,91,0"), "line 5", "no name"},
        Malformed{"not_utf8", With(3, "s\xFF,primary,0,0,1,B,1,91,0"), "line 5", "UTF-8"},
        Malformed{"zero_time", With(3, "s1,primary,0,0,1,B,1,0,0"), "line 5", "ns \"0\""},
        Malformed{"negative_time", With(3, "s1,primary,0,0,1,B,1,-91,0"), "line 5", "ns \"-91\""},
        Malformed{"time_with_point", With(3, "s1,primary,0,0,1,B,1,91.5,0"), "line 5", "ns \"91.5\""},
        Malformed{"time_with_plus", With(3, "s1,primary,0,0,1,B,1,+91,0"), "line 5", "ns \"+91\""},
        Malformed{"time_in_hexadecimal", With(3, "s1,primary,0,0,1,B,1,0x91,0"), "line 5", "ns \"0x91\""},
        Malformed{"time_too_long", With(3, "s1,primary,0,0,1,B,1,9223372036854775808,0"), "line 5", "ns"},
        Malformed{"time_missing", With(3, "s1,primary,0,0,1,B,1,,0"), "line 5", "ns \"\""},
        Malformed{"blank_before", With(3, "s1,primary, 0,0,1,B,1,91,0"), "line 5", "round \" 0\""},
        Malformed{"round_negative", With(3, "s1,primary,-1,0,1,B,1,91,0"), "line 5", "round \"-1\""},
        Malformed{"round_too_long", With(3, "s1,primary,2147483647,0,1,B,1,91,0"), "line 5", "round"},
        Malformed{"quad_not_a_number", With(3, "s1,primary,0,x,1,B,1,91,0"), "line 5", "quad \"x\""},
        Malformed{"pos_too_great", With(3, "s1,primary,0,0,4,B,1,91,0"), "line 5", "pos \"4\""},
        Malformed{"unknown_arm", With(3, "s1,primary,0,0,1,C,1,91,0"), "line 5", "arm \"C\""},
        Malformed{"throttled_not_a_bit", With(3, "s1,primary,0,0,1,B,1,91,2"), "line 5", "throttled \"2\""},
        Malformed{"nul", With(3, std::string("s1\0,primary,0,0,1,B,1,91,0", 26)), "line 5", "NUL"},
        Malformed{"nul_in_quotes", With(3, std::string("\"s\0\",primary,0,0,1,B,1,91,0", 27)), "line 5", "NUL"},
        Malformed{"quote_inside", With(3, "s\"1\",primary,0,0,1,B,1,91,0"), "line 5", "quote inside"},
        Malformed{"quote_open", With(7, "\"s1,primary,0,0,3,A,1,98,0"), "line 9", "never ends"},
        Malformed{"text_behind_quotes", With(3, "\"s1\"x,primary,0,0,1,B,1,91,0"), "line 5", "behind a quoted"},
        Malformed{"duplicate", With(3, kQuad[2]), "line 5", "repeats line 4"},
        Malformed{"block_of_two_arms", With(3, "s1,primary,0,0,1,A,1,91,0"), "line 5", "both arms"},
        Malformed{"repetition_missing_at_the_end", With(3, ""), "line 4",
                  "1 repetitions where the series began with 2"},
        Malformed{"repetition_missing_before", With(2, ""), "line 4", "rep 0 is missing"},
        Malformed{"block_missing", File({kQuad[0], kQuad[1], kQuad[2], kQuad[3], kQuad[4], kQuad[5]}), "line 2",
                  "lacks its block at pos 3"},
        Malformed{"arm_missing", File({kQuad[0], kQuad[1], kQuad[6], kQuad[7]}), "line 2", "lacks its block at pos 1"},
        Malformed{"arms_in_a_wrong_order",
                  File({"s1,primary,0,0,0,A,0,9,0", "s1,primary,0,0,1,B,0,9,0", "s1,primary,0,0,2,A,0,9,0",
                        "s1,primary,0,0,3,B,0,9,0"}),
                  "line 2", "ABAB, not ABBA or BAAB"},
        Malformed{"one_arm_alone",
                  File({"s1,primary,0,0,0,A,0,9,0", "s1,primary,0,0,1,A,0,9,0", "s1,primary,0,0,2,A,0,9,0",
                        "s1,primary,0,0,3,A,0,9,0"}),
                  "line 2", "AAAA, not ABBA or BAAB"}),
    [](const auto& malformed) { return malformed.param.name; });

// Whatever single byte is struck from, put into or changed in a file, the answer is a value or a named line.
TEST(ParseSamples, SurvivesEveryChangeOfOneByte) {
  const std::string file = File(kQuad);
  for (std::size_t at = 0; at < file.size(); ++at) {
    for (const char byte : {'\0', '\n', '\r', '"', ',', '9', '-', '\xFF'}) {
      std::string changed = file;
      changed[at] = byte;
      const auto samples = ParseSamples(changed);
      if (samples.ok()) continue;
      EXPECT_THAT(std::string(samples.status().message()), HasSubstr("samples: line ")) << at;
    }
    const auto cut = ParseSamples(file.substr(0, at));
    EXPECT_EQ(cut.ok(), at == file.size() - 1) << at;  // Only the last newline may be missing.
  }
}

}  // namespace
}  // namespace keval::verdict
