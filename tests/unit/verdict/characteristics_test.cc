// Rates of the procedure over calibration rounds, and their file.
#include "core/verdict/characteristics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/verdict/calibration_job.h"
#include "core/verdict/calibration_json.h"

namespace keval::verdict {
namespace {

using testing::HasSubstr;

// `count` rounds of an effect with noise of `sd` on primary and control.
void AddRounds(double effect, int count, double sd, std::mt19937_64* random, std::vector<CalibrationRound>* rounds) {
  std::normal_distribution<double> noise(0, sd);
  for (int i = 0; i < count; ++i) {
    rounds->push_back({effect, "2026-11-30T10:00:00.000Z", effect + noise(*random), noise(*random)});
  }
}

std::vector<CalibrationRound> QuietRounds() {
  std::vector<CalibrationRound> rounds;
  std::mt19937_64 random(7);
  AddRounds(0, 120, 0.001, &random, &rounds);
  for (const double effect : {0.003, 0.005, 0.01, 0.03, -0.01}) AddRounds(effect, 60, 0.001, &random, &rounds);
  return rounds;
}

Characteristics Of(const std::vector<CalibrationRound>& rounds, CharacteristicOptions options = {}) {
  options.resampled_jobs = 500;
  const auto shown = Characterize(rounds, options);
  EXPECT_TRUE(shown.ok()) << shown.status();
  return shown.value_or(Characteristics());
}

const Target& TargetNamed(const Characteristics& shown, const std::string& id) {
  const auto found =
      std::find_if(shown.targets.begin(), shown.targets.end(), [&id](const Target& target) { return target.id == id; });
  EXPECT_NE(found, shown.targets.end()) << id;
  return *found;
}

TEST(ClopperPearson, MatchesPublishedIntervals) {
  const Proportion none = ClopperPearson(0, 300);
  EXPECT_EQ(none.lo, 0);
  EXPECT_NEAR(none.hi, 0.012221, 1e-6);  // 1 - 0.025^(1/300).
  const Proportion all = ClopperPearson(60, 60);
  EXPECT_NEAR(all.lo, 0.940370, 1e-6);  // 0.025^(1/60).
  EXPECT_EQ(all.hi, 1);
  const Proportion some = ClopperPearson(4, 20);
  EXPECT_NEAR(some.lo, 0.057334, 1e-6);  // Clopper and Pearson 1934.
  EXPECT_NEAR(some.hi, 0.436614, 1e-6);
  EXPECT_EQ(ClopperPearson(0, 0).hi, 1);
}

TEST(Draws, AreSplitMix64) {
  Draws draws(0);
  // The generator's first two words from seed 0 are 0xe220a8397b1dcdaf and 0x6e789e6aa1b965f4.
  EXPECT_EQ(draws.Next(1000), 0xe220a8397b1dcdafULL % 1000);
  EXPECT_EQ(draws.Next(7), 0x6e789e6aa1b965f4ULL % 7);
}

TEST(DecideJob, SaysWhatTheTableSays) {
  Config config;
  const auto job = [](double primary, double control) {
    std::vector<JobRound> rounds;
    for (int i = 0; i < 24; ++i) {
      const double wobble = i % 2 == 0 ? 0.0002 : -0.0002;
      rounds.push_back({primary + wobble, control - wobble, {}});
    }
    return rounds;
  };
  EXPECT_EQ(DecideJob(job(0.03, 0), config).call, Call::kImproved);
  EXPECT_EQ(DecideJob(job(0.03, 0), config).rounds, 6);
  EXPECT_EQ(DecideJob(job(-0.03, 0), config).call, Call::kRegressed);
  EXPECT_EQ(DecideJob(job(0, 0), config).call, Call::kEquivalent);
  EXPECT_EQ(DecideJob(job(0.03, 0.01), config).call, Call::kControlFailed);
  EXPECT_EQ(DecideJob(job(-0.00995, 0), config).call, Call::kUndecided);
  EXPECT_EQ(DecideJob(job(-0.00995, 0), config).rounds, 24);
  auto guarded = job(0.03, 0);
  for (std::size_t i = 0; i < guarded.size(); ++i) guarded[i].guard = i % 2 == 0 ? -0.0201 : -0.0199;
  EXPECT_EQ(DecideJob(guarded, config).call, Call::kRegressed);
}

TEST(Characteristics, CountEveryJobOnce) {
  const Characteristics shown = Of(QuietRounds());
  ASSERT_EQ(shown.effects.size(), 6U);
  EXPECT_EQ(shown.effects[0].effect, 0);  // A/A first.
  EXPECT_EQ(shown.effects[1].effect, -0.01);
  EXPECT_EQ(shown.effects[0].rounds, 120);
  for (const EffectRates& effect : shown.effects) {
    ASSERT_EQ(effect.jobs.size(), 8U);
    for (const JobRates& rates : effect.jobs) {
      const int jobs = rates.resampled ? 500 : effect.rounds / rates.rounds;
      EXPECT_EQ(rates.improved.trials, jobs);
      EXPECT_EQ(rates.improved.count + rates.equivalent.count + rates.regressed.count + rates.control_failed.count +
                    rates.undecided.count,
                jobs);
    }
  }
}

TEST(Characteristics, QuietRoundsMeetEveryTargetThatCanBeMet) {
  const Characteristics shown = Of(QuietRounds());
  EXPECT_EQ(shown.delta, 0.005);
  EXPECT_EQ(shown.delta_source, "calibration");
  for (const char* id : {"gain_3pct", "gain_1pct", "gain_0.5pct"}) {
    const Target& target = TargetNamed(shown, id);
    ASSERT_EQ(target.rates.size(), 2U) << id;
    EXPECT_EQ(target.rates[1].status, "met") << id;
    EXPECT_EQ(target.rates[0].share.rate, 1) << id;  // Every real job; too few of them to say "met".
    EXPECT_EQ(target.rates[0].status, "open") << id;
  }
  EXPECT_EQ(TargetNamed(shown, "aa_improved").rates[3].share.trials, 500);
  EXPECT_NE(TargetNamed(shown, "aa_improved").rates[3].status, "missed");
  EXPECT_EQ(TargetNamed(shown, "wrong_sign").rates[3].share.count, 0);
  EXPECT_EQ(TargetNamed(shown, "wrong_sign").rates[3].share.trials, 1500);  // 1 %, 3 % and -1 %.
  EXPECT_EQ(TargetNamed(shown, "guard_at_two_margins").rates[0].share.count, 0);
  EXPECT_EQ(TargetNamed(shown, "slot_bias").rates[0].share.count, 0);
  EXPECT_NEAR(TargetNamed(shown, "coverage").rates[1].share.rate, 0.95, 0.02);
}

// The summary must be able to say that something is wrong.
TEST(Characteristics, ABiasThatTheControlDoesNotShareIsCalledOut) {
  std::vector<CalibrationRound> rounds;
  std::mt19937_64 random(8);
  AddRounds(0, 120, 0.001, &random, &rounds);
  for (CalibrationRound& round : rounds) round.primary += 0.006;
  AddRounds(0.03, 60, 0.05, &random, &rounds);
  const Characteristics shown = Of(rounds, {.margin = 0.005});
  EXPECT_EQ(TargetNamed(shown, "aa_improved").rates[3].status, "missed");
  EXPECT_EQ(TargetNamed(shown, "gain_3pct").rates[1].status, "missed");
  EXPECT_EQ(TargetNamed(shown, "gain_1pct").rates[0].status, "no_rounds");
  EXPECT_EQ(shown.delta_source, "given");
}

TEST(Characteristics, AreTheSameForTheSameSeed) {
  const auto text = [](std::uint64_t seed) {
    CharacteristicOptions options;
    options.seed = seed;
    return CharacteristicsToJson(Of(QuietRounds(), options)).dump();
  };
  EXPECT_EQ(text(3), text(3));
  EXPECT_NE(text(3), text(4));
}

TEST(Characteristics, RefuseWhatCantBe) {
  EXPECT_TRUE(absl::IsInvalidArgument(Characterize({}, {}).status()));
  const std::vector<CalibrationRound> rounds = QuietRounds();
  EXPECT_TRUE(absl::IsInvalidArgument(Characterize(rounds, {.margin = 0}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Characterize(rounds, {.resampled_jobs = 0}).status()));
}

TEST(CalibrationJson, ReadsWhatItWrites) {
  CalibrationFile file{.device = "A \"CPU\"", .spec = {{"quads", 8}}, .collected = {{{"from_round", 0}}}};
  file.rounds = {{0, "2026-11-30T10:00:00.000Z", 0.00125, -1e-17}, {-0.005, "later", -0.25, 1}};
  const auto read = ParseCalibration(FormatCalibration(file));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->device, file.device);
  EXPECT_EQ(read->spec, file.spec);
  EXPECT_EQ(read->collected, file.collected);
  ASSERT_EQ(read->rounds.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read->rounds[i].effect, file.rounds[i].effect);
    EXPECT_EQ(read->rounds[i].started, file.rounds[i].started);
    EXPECT_EQ(read->rounds[i].primary, file.rounds[i].primary);  // All digits.
    EXPECT_EQ(read->rounds[i].control, file.rounds[i].control);
  }
}

TEST(CalibrationJson, TakesAFileWithNothingButRounds) {
  const auto file = ParseCalibration(
      R"({"device": {"uuid": "GPU-1"}, "rounds": [{"kind": "injected", "effect": 0.01, "started": "", "series": {"primary": 0, "control": 0}}]})");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->rounds.size(), 1U);
}

TEST(CalibrationJson, NamesThePlaceOfAFault) {
  struct Case {
    const char* text;
    const char* place;
  };
  const Case cases[] = {
      {"", "calibration"},
      {"[]", "calibration"},
      {R"({"rounds": []})", "calibration.device"},
      {R"({"device": "x"})", "calibration.rounds"},
      {R"({"device": "x", "rounds": {}})", "rounds"},
      {R"({"device": "x", "rounds": [], "collected": 1})", "collected"},
      {R"({"device": "x", "rounds": [1]})", "rounds[0]"},
      {R"({"device": "x", "rounds": [{"kind": "ab", "effect": 0, "started": "", "series": {"primary": 0, "control": 0}}]})",
       "rounds[0].kind"},
      {R"({"device": "x", "rounds": [{"kind": "aa", "effect": 0.1, "started": "", "series": {"primary": 0, "control": 0}}]})",
       "rounds[0].effect"},
      {R"({"device": "x", "rounds": [{"kind": "injected", "effect": 0, "started": "", "series": {"primary": 0, "control": 0}}]})",
       "rounds[0].effect"},
      {R"({"device": "x", "rounds": [{"kind": "aa", "effect": 0, "started": "", "series": {"primary": "nan", "control": 0}}]})",
       "rounds[0].series.primary"},
      {R"({"device": "x", "rounds": [{"kind": "aa", "effect": 0, "started": "", "series": {"primary": 0}}]})",
       "rounds[0].series.control"},
      {R"({"device": "x", "rounds": [{"kind": "aa", "effect": 0, "series": {}}]})", "rounds[0].started"}};
  for (const Case& one : cases) {
    const auto file = ParseCalibration(one.text);
    EXPECT_TRUE(absl::IsInvalidArgument(file.status())) << one.text;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(one.place)) << one.text;
  }
}

}  // namespace
}  // namespace keval::verdict
