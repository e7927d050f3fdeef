// The traces of tests/cases/verdict, every figure of expected.json to 1e-9.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/verdict/json.h"
#include "core/verdict/recompute.h"
#include "tests/unit/verdict/verdict_testing.h"

namespace keval::verdict {
namespace {

using nlohmann::json;

constexpr double kTolerance = 1e-9;

// Everything in `want` is in `got`; numbers agree to kTolerance.
void ExpectHolds(const json& got, const json& want, const std::string& path) {
  SCOPED_TRACE(path);
  if (want.is_object()) {
    ASSERT_TRUE(got.is_object());
    for (const auto& [key, value] : want.items()) {
      ASSERT_TRUE(got.contains(key)) << key;
      ExpectHolds(got[key], value, absl::StrCat(path, ".", key));
    }
  } else if (want.is_array()) {
    ASSERT_TRUE(got.is_array());
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) ExpectHolds(got[i], want[i], absl::StrCat(path, "[", i, "]"));
  } else if (want.is_number_float()) {
    ASSERT_TRUE(got.is_number());
    EXPECT_NEAR(got.get<double>(), want.get<double>(), kTolerance);
  } else {
    EXPECT_EQ(got, want);
  }
}

class Trace : public testing::TestWithParam<std::string> {};

TEST_P(Trace, IsReproducedInEveryFigure) {
  const json expected = json::parse(ReadCase("verdict/expected.json"));
  json want = expected["traces"][GetParam()];
  const std::string csv = ReadCase("verdict/" + GetParam() + ".csv");
  // What wrong procedures would have said, and how the file was made.
  for (const char* other : {"pooled_mwu_p", "naive_firsthalfA_secondhalfB_log", "seed"}) {
    ASSERT_EQ(want.erase(other), 1U);
  }
  const auto recomputed = RecomputeVerdict(csv, expected["config"].dump());
  ASSERT_TRUE(recomputed.ok()) << recomputed.status();
  const json got = json::parse(RecomputedToJson(*recomputed).dump());
  ExpectHolds(got, want, GetParam());
  EXPECT_EQ(got["memory"], "not_recorded");
}

INSTANTIATE_TEST_SUITE_P(All, Trace,
                         testing::Values("aa_drift", "gain_3pct", "pseudorep_null", "guard_regression", "control_bias"),
                         [](const auto& trace) { return trace.param; });

TEST(TraceList, NamesEveryTrace) {
  const json expected = json::parse(ReadCase("verdict/expected.json"));
  EXPECT_EQ(expected["traces"].size(), 5U);
}

TEST(Trace, SlowFirstRepetitionIsOutvotedByTheBlockMedian) {
  json want = json::parse(ReadCase("reports/samples_slow_first_repetition.expected.json"));
  const double only_first = want["if_only_repetition_0_were_read"]["s1_L"];
  for (const char* other : {"note", "if_only_repetition_0_were_read", "config"}) want.erase(other);
  const std::string csv = ReadCase("reports/samples_slow_first_repetition.csv");
  const auto recomputed = RecomputeVerdict(csv, ReadCase("reports/samples_slow_first_repetition.expected.json"));
  ASSERT_TRUE(recomputed.ok()) << recomputed.status();
  ExpectHolds(json::parse(RecomputedToJson(*recomputed).dump()), want, "slow_first");
  EXPECT_NEAR(only_first, -0.028305, 1e-6);
  EXPECT_GT(recomputed->outcome.looks[0].series[0].L, 0);
}

TEST(Trace, IsTheSameFromRowsInAnyOrder) {
  const auto samples = ParseSamples(ReadCase("verdict/gain_3pct.csv"));
  ASSERT_TRUE(samples.ok());
  std::vector<Sample> reversed(samples->rbegin(), samples->rend());
  const auto config = ConfigFromJson(ReadCase("verdict/expected.json"));
  ASSERT_TRUE(config.ok());
  const auto want = Decide(*samples, *config);
  const auto got = Decide(reversed, *config);
  ASSERT_TRUE(want.ok() && got.ok());
  EXPECT_EQ(got->verdict, "IMPROVED");
  // File order is the other way round; each series' figures are bit for bit the same.
  EXPECT_EQ(got->looks[0].series[0].series, "ctl");
  EXPECT_EQ(got->looks[0].series[2].L, want->looks[0].series[0].L);
  EXPECT_EQ(got->looks[0].series[2].sup_lo, want->looks[0].series[0].sup_lo);
}

}  // namespace
}  // namespace keval::verdict
