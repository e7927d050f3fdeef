#include "client/spec/spec.h"

#include <chrono>
#include <ostream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "tests/unit/client/temporary_folder.h"

namespace keval::spec {
namespace {

using ::testing::HasSubstr;

const char kShape[] = "{num_tokens: 4, hidden_size: 8, vocab_size: 16}";

std::string WithPrimaries(const std::string& rest) { return absl::StrCat("primaries: [", kShape, "]\n", rest); }

absl::StatusOr<v1::BenchmarkSpec> Yaml(const std::string& text) { return ParseSpec(text, Format::kYaml, "a.yaml"); }
absl::StatusOr<v1::BenchmarkSpec> Json(const std::string& text) { return ParseSpec(text, Format::kJson, "a.json"); }

TEST(SpecTest, ReadsEveryKindOfField) {
  const auto spec = Yaml(R"(
display_name: no
target: {device: 'cuda:0', min_compute_capability: 9.0, force_variant: true}
base: {variant: portable_matmul_add}
candidate:
  variant: 1e3
primaries:
  - num_tokens: 4096
    hidden_size: 0010
    vocab_size: +32768
    dtype: bfloat16
    bias: true
    autocast: none
    chunk_elems: "65536"
guards:
  - {num_tokens: 1, hidden_size: 1, vocab_size: 1, dtype: DATA_TYPE_FLOAT16}
margins: {primary: 1e-2, "4x8x16/float32/nobias": .5}
diagnostics: {chunk_sweep: [1, 2, 4, 8], profile: false}
procedure: {looks: [6, 10], a_sup: [.002, 2e-3], quads: 8, hang_timeout_seconds: 120}
seed: 9007199254740993
)");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->display_name(), "no");
  EXPECT_EQ(spec->target().min_compute_capability(), "9.0");
  EXPECT_TRUE(spec->target().force_variant());
  EXPECT_EQ(spec->candidate().variant(), "1e3");
  EXPECT_EQ(spec->primaries(0).hidden_size(), 10);
  EXPECT_EQ(spec->primaries(0).vocab_size(), 32768);
  EXPECT_EQ(spec->primaries(0).dtype(), v1::DATA_TYPE_BFLOAT16);
  EXPECT_EQ(spec->primaries(0).autocast(), v1::AUTOCAST_NONE);
  EXPECT_EQ(spec->primaries(0).chunk_elems(), 65536);
  EXPECT_EQ(spec->guards(0).dtype(), v1::DATA_TYPE_FLOAT16);
  EXPECT_EQ(spec->margins().at("primary"), 0.01);
  EXPECT_EQ(spec->diagnostics().chunk_sweep_size(), 4);
  EXPECT_EQ(spec->procedure().a_sup(1), 0.002);
  EXPECT_EQ(spec->seed(), 9007199254740993U);
}

TEST(SpecTest, JsonSaysTheSame) {
  const auto yaml =
      Yaml(WithPrimaries("seed: 18446744073709551615\nmargins: {primary: 0.01}\ndisplay_name: \"\\u263a\""));
  const auto json = Json(R"({"primaries": [{"num_tokens": 4, "hidden_size": 8, "vocab_size": "16"}],
    "seed": "18446744073709551615", "margins": {"primary": 1e-2}, "display_name": "\u263a"})");
  ASSERT_TRUE(yaml.ok()) << yaml.status();
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(yaml->SerializeAsString(), json->SerializeAsString());
}

TEST(SpecTest, KeepsAllDigitsOfASeedInJsonNumberOrText) {
  for (const char* seed : {"9007199254740993", "\"9007199254740993\""}) {
    const auto spec =
        Json(absl::StrCat(R"({"primaries":[{"num_tokens":4,"hidden_size":8,"vocab_size":16}],"seed":)", seed, "}"));
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->seed(), 9007199254740993U);
  }
}

// Case 8: three ways to write one number.
TEST(SpecTest, MarginsWrittenDifferentlyAreTheSame) {
  const auto plain = Yaml(WithPrimaries("margins: {primary: 0.01}"));
  for (const char* text : {"1e-2", "1.0e-2", "+.01", "1E-2", "0.010"}) {
    const auto other = Yaml(WithPrimaries(absl::StrCat("margins: {primary: ", text, "}")));
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ(other->SerializeAsString(), plain->SerializeAsString()) << text;
  }
}

struct Bad {
  const char* name;
  std::string text;
  int line;
  const char* field;
  const char* value;  // Part of the message.
  Format format = Format::kYaml;
  // What a failure says, in place of its bytes.
  friend void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.name; }
};
class BadSpecTest : public ::testing::TestWithParam<Bad> {};

TEST_P(BadSpecTest, NamesLinePathAndValue) {
  const auto spec = ParseSpec(GetParam().text, GetParam().format, "a.spec");
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << spec.status();
  const std::string message(spec.status().message());
  EXPECT_THAT(message, HasSubstr(absl::StrCat("a.spec: line ", GetParam().line, ": ")));
  EXPECT_THAT(message, HasSubstr(GetParam().value));
  EXPECT_EQ(GetFieldViolation(spec.status())->field, GetParam().field) << message;
}

INSTANTIATE_TEST_SUITE_P(
    Yaml, BadSpecTest,
    ::testing::Values(
        // Case 8.
        Bad{"Percent", WithPrimaries("margins:\n  primary: 0.01%"), 3, "margins.primary", "0.01%"},
        Bad{"NoExponent", WithPrimaries("margins:\n  primary: 1e"), 3, "margins.primary", "1e"},
        Bad{"Dot", WithPrimaries("margins:\n  primary: ."), 3, "margins.primary", ". must"},
        Bad{"Comma", WithPrimaries("margins:\n  primary: 0,01"), 3, "margins.primary", "0,01"},
        Bad{"Nan", WithPrimaries("margins:\n  primary: .nan"), 3, "margins.primary", ".nan"},
        Bad{"Hexadecimal", WithPrimaries("seed: 0x10"), 2, "seed", "0x10"},
        Bad{"TextMargin", WithPrimaries("margins:\n  primary: \"0.01\""), 3, "margins.primary", "\"0.01\""},
        Bad{"MarginZero", WithPrimaries("margins:\n  guard: 0"), 3, "margins.guard", "0 must"},
        Bad{"MarginLarge", WithPrimaries("margins:\n  guard: 0.6"), 3, "margins.guard", "0.6"},
        Bad{"BoolNo", WithPrimaries("target:\n  force_variant: no"), 3, "target.force_variant", "true or false"},
        Bad{"BoolQuoted", WithPrimaries("target:\n  force_variant: 'true'"), 3, "target.force_variant",
            "true or false"},
        Bad{"BoolOne", WithPrimaries("target:\n  force_variant: 1"), 3, "target.force_variant", "true or false"},
        Bad{"Unknown", "primaries:\n  - num_tokens: 4\n    vocab_sise: 8", 3, "primaries[0].vocab_sise",
            "did you mean vocab_size?"},
        Bad{"UnknownFar", WithPrimaries("zzz: 1"), 2, "zzz", "one of display_name, target"},
        Bad{"CamelCase", "primaries:\n  - {numTokens: 4}", 2, "primaries[0].numTokens", "did you mean num_tokens?"},
        Bad{"Duplicate", "seed: 1\nseed: 2", 2, "seed", "given twice"},
        Bad{"DuplicateMargin", WithPrimaries("margins:\n  a: 0.1\n  a: 0.1"), 4, "margins.a", "given twice"},
        Bad{"Anchor", "primaries:\n  - &a {num_tokens: 1}", 2, "primaries[0]", "anchor"},
        Bad{"Merge", "target: {device: cpu}\nbase: &x {variant: a}\ncandidate:\n  <<: *x", 2, "base", "anchor"},
        Bad{"Tag", WithPrimaries("seed: !!int 3"), 2, "seed", "tag"},
        Bad{"Null", WithPrimaries("target:"), 2, "target", "an empty value"},
        Bad{"NullText", WithPrimaries("display_name: ~"), 2, "display_name", "an empty value"},
        Bad{"ListForText", WithPrimaries("display_name: [a]"), 2, "display_name", "a list"},
        Bad{"MapForList", "primaries: {num_tokens: 4}", 1, "primaries", "a list"},
        Bad{"TextForMap", WithPrimaries("target: cpu"), 2, "target", "a mapping"},
        Bad{"Fraction", "primaries:\n  - {num_tokens: 4.5}", 2, "primaries[0].num_tokens", "4.5"},
        Bad{"Exponent", "primaries:\n  - {num_tokens: 1e3}", 2, "primaries[0].num_tokens", "1e3"},
        Bad{"PastInt64", "primaries:\n  - {num_tokens: 9223372036854775808}", 2, "primaries[0].num_tokens", "2^63"},
        Bad{"PastInt32", WithPrimaries("procedure: {quads: 4294967304}"), 2, "procedure.quads", "4294967304"},
        Bad{"NegativeSeed", WithPrimaries("seed: -1"), 2, "seed", "-1"},
        Bad{"Dtype", "primaries:\n  - {dtype: bfloat166}", 2, "primaries[0].dtype", "did you mean bfloat16?"},
        Bad{"DtypeNumber", "primaries:\n  - {dtype: 3}", 2, "primaries[0].dtype", "one of float32"},
        Bad{"DtypeUnspecified", "primaries:\n  - {dtype: unspecified}", 2, "primaries[0].dtype", "one of float32"},
        Bad{"NoPrimaries", "seed: 1", 1, "primaries", "at least one"},
        Bad{"EmptyPrimaries", "seed: 1\nprimaries: []", 2, "primaries", "at least one"},
        Bad{"Zero", "primaries:\n  - num_tokens: 4\n    hidden_size: 0\n    vocab_size: 1", 3,
            "primaries[0].hidden_size", "0 must be at least 1"},
        Bad{"LeftOut", "primaries:\n  - num_tokens: 4\n    hidden_size: 2", 2, "primaries[0].vocab_size", "left out"},
        Bad{"Negative", WithPrimaries("guards:\n  - {num_tokens: 4, hidden_size: 1, vocab_size: -7}"), 3,
            "guards[0].vocab_size", "-7"},
        Bad{"Overflow", "primaries:\n  - num_tokens: 1\n    hidden_size: 4294967296\n    vocab_size: 4294967296", 4,
            "primaries[0].vocab_size", "4294967296"},
        Bad{"LongName", WithPrimaries("display_name: " + std::string(257, 'x')), 2, "display_name", "256"},
        Bad{"Syntax", "primaries:\n  - {num_tokens: 4", 2, "primaries[0]", "a key must be text"},
        Bad{"Tab", "target:\n\tdevice: cpu", 2, "", "YAML"}, Bad{"EmptyFile", "", 1, "", "a document"},
        Bad{"TwoDocuments", WithPrimaries("---\nseed: 1"), 2, "", "second document"},
        Bad{"TwoDocumentsFarApart", WithPrimaries("seed: 1\n...\n# more\n---\n"), 5, "", "second document"},
        Bad{"Nul", WithPrimaries("seed: 1\ndisplay_name: a") + std::string(1, '\0') + "b\n", 3, "", "NUL"},
        Bad{"Latin1", "seed: 1\ndisplay_name: caf\xE9", 2, "", "UTF-8"}, Bad{"List", "- 1", 1, "", "a mapping"},
        Bad{"MapKey", "? {a: 1}\n: 2", 1, "", "text"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Json, BadSpecTest,
    ::testing::Values(Bad{"Duplicate", "{\"seed\": 1,\n\"seed\": 2}", 2, "seed", "given twice", Format::kJson},
                      Bad{"BoolText", "{\"target\": {\n\"force_variant\": \"true\"}}", 2, "target.force_variant",
                          "true or false", Format::kJson},
                      Bad{"NumberForText", "{\n\"display_name\":\n 3}", 3, "display_name", "3 must be text",
                          Format::kJson},
                      Bad{"TrueForText", "{\"display_name\": true}", 1, "display_name", "text", Format::kJson},
                      Bad{"Null", "{\"display_name\": null}", 1, "display_name", "an empty value", Format::kJson},
                      Bad{"NumberAtLineEnd", "{\"seed\":\n-1\n}", 2, "seed", "-1", Format::kJson},
                      Bad{"Huge", "{\"seed\": 1e400}", 1, "seed", "JSON", Format::kJson},
                      Bad{"LeadingZero", "{\"seed\": 0010}", 1, "", "JSON", Format::kJson},
                      Bad{"BareNan", "{\"margins\":\n{\"primary\": NaN}}", 2, "margins.primary", "JSON", Format::kJson},
                      Bad{"Cut", "{\"seed\": 1", 1, "", "JSON", Format::kJson},
                      Bad{"Deep", "{\"primaries\":" + std::string(100000, '['), 1,
                          "primaries[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]", "nested", Format::kJson}),
    [](const auto& info) { return info.param.name; });

TEST(SpecTest, AMillionShapesAreRefusedQuickly) {
  std::string yaml = "primaries: [";
  for (int i = 0; i < 1'000'000; ++i) yaml += i == 0 ? "{}" : ",{}";
  yaml += "]";
  const auto start = std::chrono::steady_clock::now();
  for (const auto format : {Format::kYaml, Format::kJson}) {
    const std::string text = format == Format::kJson ? "{\"primaries\": " + yaml.substr(11) + "}" : yaml;
    const auto spec = ParseSpec(text, format, "a.spec");
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(spec.status().message()),
                HasSubstr("primaries[1000]: the list must be one of at most 1000"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(SpecTest, DeepYamlIsRefused) {
  EXPECT_EQ(Yaml("primaries: " + std::string(100000, '[')).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SpecTest, ReadsFilesByTheirEndingOrFirstCharacter) {
  const TemporaryFolder folder;
  const std::string json = R"({"primaries": [{"num_tokens": 4, "hidden_size": 8, "vocab_size": 16}]})";
  EXPECT_TRUE(ReadSpec(folder.Write("a.json", json)).ok());
  EXPECT_TRUE(ReadSpec(folder.Write("b", "\n " + json)).ok());
  EXPECT_TRUE(ReadSpec(folder.Write("c.yaml", WithPrimaries(""))).ok());
  EXPECT_TRUE(ReadSpec(folder.Write("d", WithPrimaries(""))).ok());
  EXPECT_EQ(ReadSpec(folder.File("absent")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadSpec(folder.path().string()).status().code(), absl::StatusCode::kInvalidArgument);
  const auto large = ReadSpec(folder.Write("large.yaml", std::string(5 << 20, '#')));
  EXPECT_THAT(std::string(large.status().message()), HasSubstr("at most 4194304 bytes"));
}

}  // namespace
}  // namespace keval::spec
