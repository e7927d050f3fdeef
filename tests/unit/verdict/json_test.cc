#include "core/verdict/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "base/field_error.h"
#include "core/verdict/recompute.h"
#include "tests/unit/verdict/verdict_testing.h"

namespace keval::verdict {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(ConfigFromJson, ReadsBackWhatIsWritten) {
  Config config;
  config.looks = {5, 7};
  config.a_sup = {.003, .004};
  config.a_eq = {.02, .03};
  config.a_ctl = {.001, .002};
  config.delta = {{"primary", .01}, {"4096x2048x32768/bfloat16/bias", 1e-2}, {"rocket \xF0\x9F\x9A\x80 \x1B", .005}};
  config.consist = .7;
  config.ctl_floor = .001;
  config.thr_quads_max = .1;
  config.thr_asym_p = .02;
  const auto read = ConfigFromJson(ConfigToJson(config).dump());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ConfigToJson(*read), ConfigToJson(config));
  EXPECT_EQ(read->delta, config.delta);
}

TEST(ConfigFromJson, LeavesDefaults) {
  const auto config = ConfigFromJson("{}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(ConfigToJson(*config), ConfigToJson(Config()));
}

TEST(ConfigFromJson, FindsItInADocumentWhoseOtherKeysItIgnores) {
  const auto config = ConfigFromJson(R"({"name": "jobs/1", "config": {"looks": [4, "8"], "a_sup": [0.01, 0.01],
      "a_eq": [0.01, 0.01], "a_ctl": [0.01, 0.01]}, "blocks": []})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->looks, ElementsAre(4, 8));
}

struct BadConfig {
  std::string name;
  std::string text;
  std::string says;
  // What a failure says, in place of its bytes.
  friend void PrintTo(const BadConfig& bad, std::ostream* out) { *out << bad.name; }
};

class ConfigText : public testing::TestWithParam<BadConfig> {};

TEST_P(ConfigText, IsRefusedNamingThePath) {
  const auto config = ConfigFromJson(GetParam().text);
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(config.status().message()), HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    All, ConfigText,
    testing::Values(BadConfig{"empty", "", "not JSON"}, BadConfig{"truncated", R"({"looks": [6)", "not JSON"},
                    BadConfig{"two_documents", "{} {}", "not JSON"},
                    BadConfig{"bare_nan", R"({"consist": NaN})", "not JSON"},
                    BadConfig{"overflow", R"({"consist": 1e999})", "not JSON"}, BadConfig{"a_list", "[]", "config"},
                    BadConfig{"config_is_text", R"({"config": "x"})", "config"},
                    BadConfig{"unknown_key", R"({"lookss": [6]})", "lookss"},
                    BadConfig{"unknown_key_inside", R"({"config": {"lookss": [6]}})", "config.lookss"},
                    BadConfig{"duplicate_key", R"({"consist": 0.8, "consist": 0.1})", "consist is given twice"},
                    BadConfig{"duplicate_key_inside", R"({"delta": {"s1": 0.1, "s2": 0.1, "s1": 0.2}})",
                              "s1 is given twice"},
                    BadConfig{"looks_is_number", R"({"looks": 6})", "looks"},
                    BadConfig{"look_is_fraction", R"({"looks": [6.5]})", "looks[0]"},
                    BadConfig{"look_is_text", R"({"looks": ["six"]})", "looks[0]"},
                    BadConfig{"look_is_huge", R"({"looks": [18446744073709551615]})", "looks[0]"},
                    BadConfig{"level_is_text", R"({"a_eq": [0.01, "x", 0.01, 0.01]})", "a_eq[1]"},
                    BadConfig{"levels_do_not_match", R"({"looks": [6]})", "a_sup"},
                    BadConfig{"delta_is_list", R"({"delta": [0.01]})", "delta"},
                    BadConfig{"delta_is_text", R"({"delta": {"s1": "1%"}})", "delta.s1"},
                    BadConfig{"delta_is_negative", R"({"delta": {"s1": -0.01}})", "delta.s1"},
                    BadConfig{"consist_is_null", R"({"consist": null})", "consist"},
                    BadConfig{"deep", std::string(100000, '['), "config"},
                    BadConfig{"deep_and_closed", std::string(100, '[') + std::string(100, ']'), "deeper"}),
    [](const auto& bad) { return bad.param.name; });

TEST(NumberToJson, WritesWhatJsonHasNoNumberForAsText) {
  EXPECT_EQ(NumberToJson(.5).dump(), "0.5");
  EXPECT_EQ(NumberToJson(std::numeric_limits<double>::quiet_NaN()).dump(), "\"nan\"");
  EXPECT_EQ(NumberToJson(std::numeric_limits<double>::infinity()).dump(), "\"inf\"");
  EXPECT_EQ(NumberToJson(-std::numeric_limits<double>::infinity()).dump(), "\"-inf\"");
}

TEST(OutcomeToJson, LeavesOutStopLookWhereNoneStopped) {
  const auto outcome = Decide({}, Config(), {.failure = "CANDIDATE_CRASHED"});
  ASSERT_TRUE(outcome.ok());
  const json written = json::parse(OutcomeToJson(*outcome).dump());
  EXPECT_FALSE(written.contains("stop_look"));
  EXPECT_EQ(written["looks"], json::array());
  EXPECT_EQ(written["rule"], 2);
  EXPECT_EQ(written["memory"], "not_recorded");
}

TEST(OutcomeToJson, HoldsNoBareNonFiniteNumber) {
  // One round of a series has no spread: most of its figures are NaN.
  const std::vector<Sample> samples = MakeSamples(
      {{.name = "s1", .values = Around(.03, .001, 6)}, {.name = "s2", .role = Role::kGuard, .values = {.01}}});
  const auto outcome = Decide(samples, Config());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const std::string text = OutcomeToJson(*outcome).dump();
  EXPECT_THAT(text, HasSubstr("\"sup_lo\":\"nan\""));
  EXPECT_EQ(json::parse(text)["looks"][0]["series"]["s2"]["n"], 1);
  const auto summaries = Summarize(samples, Config(), *outcome);
  ASSERT_TRUE(summaries.ok());
  EXPECT_EQ(SeriesToJson((*summaries)[1])["gain_lo_pct"], "nan");
}

TEST(SeriesToJson, GivesPercentagesOfTheRatio) {
  const std::vector<Sample> samples =
      MakeSamples({{.name = "s1", .values = Around(std::log(1.25), .001, 6)},
                   {.name = "ctl", .role = Role::kControl, .values = Around(0, .001, 6)}});
  const auto outcome = Decide(samples, Config());
  ASSERT_TRUE(outcome.ok());
  const auto summaries = Summarize(samples, Config(), *outcome);
  ASSERT_TRUE(summaries.ok());
  const json written = json::parse(SeriesToJson((*summaries)[0]).dump());
  EXPECT_NEAR(written["gain_pct"].get<double>(), 25, 1e-5);
  EXPECT_NEAR(written["mean_ratio"].get<double>(), 1.25, 1e-6);
  EXPECT_NEAR(written["base_ms"].get<double>() / written["candidate_ms"].get<double>(), 1.25, 1e-3);
  EXPECT_EQ(written["D"].size(), 6U);
  EXPECT_EQ(written["status"], "improved");
  const json control = json::parse(SeriesToJson((*summaries)[1]).dump());
  EXPECT_FALSE(control.contains("delta"));
  EXPECT_FALSE(control.contains("p_holm"));
}

TEST(RecomputeVerdict, ReadsItsOwnOutputAsConfig) {
  const std::string csv = ReadCase("verdict/pseudorep_null.csv");
  const auto first = RecomputeVerdict(csv, ReadCase("verdict/expected.json"));
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string document = RecomputedToJson(*first).dump(1);
  const auto second = RecomputeVerdict(csv, document);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(RecomputedToJson(*second).dump(1), document);
}

TEST(RecomputeVerdict, UsesTheDefaultsWithoutAConfig) {
  const auto recomputed = RecomputeVerdict(ReadCase("verdict/pseudorep_null.csv"), std::nullopt);
  ASSERT_TRUE(recomputed.ok()) << recomputed.status();
  EXPECT_EQ(recomputed->outcome.stop_look, 24);
  EXPECT_EQ(recomputed->rows, 2160U);
}

TEST(RecomputeVerdict, EstimatesTheRoundsOfTheUndecidedTrace) {
  const auto recomputed = RecomputeVerdict(ReadCase("verdict/pseudorep_null.csv"), ReadCase("verdict/expected.json"));
  ASSERT_TRUE(recomputed.ok());
  // δ - |L| of s1 is 0.718 %, its sd 0.826 %: t(.99, 10)·sd/√11 = 0.688 % is below, t(.99, 9)·sd/√10 = 0.737 % is not.
  EXPECT_EQ(recomputed->outcome.rounds_needed.rounds, 11);
  EXPECT_EQ(recomputed->outcome.rounds_needed.limiting_series, "s1");
  EXPECT_EQ(recomputed->outcome.rounds_needed.goal, "EQUIVALENT");
}

}  // namespace
}  // namespace keval::verdict
