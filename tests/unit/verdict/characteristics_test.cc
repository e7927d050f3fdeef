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
  const Characteristics shown = Of(QuietRounds(), {.is_h200 = true});
  EXPECT_EQ(shown.delta, 0.005);
  EXPECT_EQ(shown.delta_source, "calibration");
  for (const char* id : {"gain_3pct", "gain_1pct", "gain_0.5pct"}) {
    const Target& target = TargetNamed(shown, id);
    ASSERT_EQ(target.rates.size(), 2U) << id;
    EXPECT_EQ(target.rates[1].share.rate, 1) << id;
    EXPECT_EQ(target.rates[0].share.rate, 1) << id;  // Every real job; too few of them to say "met".
    for (const TargetRate& rate : target.rates) EXPECT_EQ(rate.status, "undecided") << id;
    EXPECT_EQ(target.status, "undecided") << id;
  }
  EXPECT_EQ(TargetNamed(shown, "gain_3pct").rates[0].jobs_needed, 72);     // 0.025^(1/72) is the first above 0.95.
  EXPECT_EQ(TargetNamed(shown, "aa_improved").rates[0].jobs_needed, 368);  // 1 - 0.025^(1/368) the first below 0.01.
  EXPECT_EQ(TargetNamed(shown, "aa_improved").rates[3].share.trials, 500);
  EXPECT_NE(TargetNamed(shown, "aa_improved").rates[3].status, "missed");
  EXPECT_EQ(TargetNamed(shown, "wrong_sign").rates[3].share.count, 0);
  EXPECT_EQ(TargetNamed(shown, "wrong_sign").rates[3].share.trials, 1500);  // 1 %, 3 % and -1 %.
  for (const char* id : {"guard_at_margin", "guard_at_two_margins", "slot_bias"}) {
    ASSERT_EQ(TargetNamed(shown, id).rates.size(), 2U) << id;  // Disjoint, then resampled.
    EXPECT_EQ(TargetNamed(shown, id).rates[0].share.trials, id == std::string("slot_bias") ? 5 : 2) << id;
    EXPECT_EQ(TargetNamed(shown, id).rates[1].share.trials, 500) << id;
    EXPECT_EQ(TargetNamed(shown, id).status, "undecided") << id;
  }
  EXPECT_EQ(TargetNamed(shown, "guard_at_two_margins").rates[1].share.count, 0);
  EXPECT_EQ(TargetNamed(shown, "slot_bias").rates[1].share.count, 0);
  EXPECT_NEAR(TargetNamed(shown, "coverage").rates[1].share.rate, 0.95, 0.02);
}

TEST(Characteristics, EnoughRoundsDecide) {
  std::vector<CalibrationRound> rounds;
  std::mt19937_64 random(9);
  AddRounds(0, 600 * 24, 0.001, &random, &rounds);
  AddRounds(0.03, 720, 0.001, &random, &rounds);
  const Characteristics shown = Of(rounds);
  for (const char* id : {"aa_improved", "aa_regressed", "gain_3pct", "slot_bias"}) {
    EXPECT_EQ(TargetNamed(shown, id).status, "met") << id;
  }
  EXPECT_EQ(TargetNamed(shown, "wrong_sign").status, "undecided");  // At most 0.1 % of 120 jobs.
  EXPECT_EQ(TargetNamed(shown, "wrong_sign").rates[0].jobs_needed, 3688);
  EXPECT_EQ(TargetNamed(shown, "gain_1pct").status, "no_rounds");
  EXPECT_EQ(TargetNamed(shown, "gain_0.3pct").status, "not_applicable");  // The device isn't said to be an H200.
}

TEST(Characteristics, FewRoundsSayThatTheyAreFew) {
  std::vector<CalibrationRound> rounds;
  std::mt19937_64 random(10);
  AddRounds(0, 3, 0.001, &random, &rounds);
  const Characteristics shown = Of(rounds);
  EXPECT_EQ(shown.delta_source, "default");
  for (const Target& target : shown.targets) {
    EXPECT_THAT(target.status, testing::AnyOf("no_rounds", "not_applicable")) << target.id;
  }
  EXPECT_THAT(shown.notes, testing::Contains(HasSubstr("Too few rounds follow each other")));
  AddRounds(0, 9, 0.001, &random, &rounds);
  EXPECT_EQ(TargetNamed(Of(rounds), "aa_improved").rates[0].share.trials, 2);
  EXPECT_EQ(TargetNamed(Of(rounds), "aa_improved").status, "undecided");
}

// The summary must be able to say that something is wrong.
TEST(Characteristics, ABiasThatTheControlDoesNotShareIsCalledOut) {
  std::vector<CalibrationRound> rounds;
  std::mt19937_64 random(8);
  AddRounds(0, 120, 0.001, &random, &rounds);
  for (CalibrationRound& round : rounds) round.primary += 0.006;
  AddRounds(0.03, 60, 0.05, &random, &rounds);
  const Characteristics shown = Of(rounds, {.margin = 0.005});
  EXPECT_EQ(TargetNamed(shown, "aa_improved").status, "missed");
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

// The file is renamed into place, but copies and disks cut files off.
TEST(CalibrationJson, RefusesAFileThatWasCutOff) {
  CalibrationFile file{.device = "CPU", .collected = nlohmann::json::array()};
  file.rounds = {{0, "", 0.1, 0.2}, {0.01, "", 0.3, 0.4}};
  const std::string text = FormatCalibration(file);
  ASSERT_TRUE(ParseCalibration(text).ok());
  for (std::size_t size = 0; size + 1 < text.size(); ++size) {  // Only the newline at the end may go.
    EXPECT_TRUE(absl::IsInvalidArgument(ParseCalibration(text.substr(0, size)).status())) << size;
  }
}

TEST(CalibrationJson, TellsTheSessionsApart) {
  const std::string round = R"({"kind": "aa", "effect": 0, "started": "", "series": {"primary": 0, "control": 0}})";
  const auto file =
      ParseCalibration(R"({"device": "x", "collected": [{"from_round": 0}, {"from_round": 2}], "rounds": [)" + round +
                       "," + round + "," + round + "]}");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->rounds[0].session, file->rounds[1].session);
  EXPECT_NE(file->rounds[1].session, file->rounds[2].session);
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
      {R"({"device": "x", "rounds": [], "collected": [{}]})", "collected[0].from_round"},
      {R"({"device": "x", "rounds": [], "collected": [{"from_round": -1}]})", "collected[0].from_round"},
      {R"({"device": "x", "rounds": [], "collected": [{"from_round": 3}, {"from_round": 2}]})",
       "collected[1].from_round"},
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
