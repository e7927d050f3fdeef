// Numbers are written and read with a point and without digit groups, whatever locale the process was given.
#include <gtest/gtest.h>

#include <clocale>
#include <locale>
#include <string>

#include "core/verdict/json.h"
#include "core/verdict/recompute.h"
#include "tests/unit/verdict/verdict_testing.h"

namespace keval::verdict {
namespace {

std::string Recompute() {
  const auto recomputed = RecomputeVerdict(ReadCase("reports/samples_slow_first_repetition.csv"),
                                           ReadCase("reports/samples_slow_first_repetition.expected.json"));
  EXPECT_TRUE(recomputed.ok()) << recomputed.status();
  return recomputed.ok() ? RecomputedToJson(*recomputed).dump(1) : "";
}

std::string Format() {
  const auto samples = ParseSamples(ReadCase("reports/samples_slow_first_repetition.csv"));
  return samples.ok() ? FormatSamples(*samples) : "";
}

TEST(Locale, GermanChangesNoByte) {
  const std::string outcome = Recompute();
  const std::string samples = Format();
  ASSERT_NE(std::setlocale(LC_ALL, "de_DE.UTF-8"), nullptr) << "scripts/bootstrap installs this locale";
  const std::locale before = std::locale::global(std::locale("de_DE.UTF-8"));
  const std::string german_outcome = Recompute();
  const std::string german_samples = Format();
  std::locale::global(before);
  std::setlocale(LC_ALL, "C");
  EXPECT_NE(outcome, "");
  EXPECT_EQ(german_outcome, outcome);
  EXPECT_EQ(german_samples, samples);
}

}  // namespace
}  // namespace keval::verdict
