#include "server/report_noise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace keval::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kQuads = 5;

// Rounds of one series in which both arms take `cycles`, each at its own clock.
struct Fixture {
  std::vector<verdict::Sample> samples;
  std::vector<RoundEvidence> rounds;
};
Fixture AtClocks(double mhz_a, double mhz_b, double cycles = 2e6) {
  Fixture out;
  for (int round = 0; round < 3; ++round) {
    RoundData data;
    for (int quad = 0; quad < kQuads; ++quad) {
      for (int pos = 0; pos < 4; ++pos) {
        const char arm = "ABBA"[pos];
        const double mhz = arm == 'A' ? mhz_a : mhz_b;
        BlockRecord block{.series = "s", .quad = quad, .pos = pos, .arm = arm};
        block.before.sm_clock_mhz = mhz - 5;
        block.after.sm_clock_mhz = mhz + 5;
        data.blocks.push_back(block);
        out.samples.push_back({.series = "s",
                               .round = round,
                               .quad = quad,
                               .pos = pos,
                               .arm = arm,
                               .ns = std::llround(cycles / mhz * 1000)});
      }
    }
    auto evidence = DecodeEvidence(EncodeEvidence(data));
    EXPECT_TRUE(evidence.ok()) << evidence.status();
    out.rounds.push_back(*std::move(evidence));
  }
  return out;
}

TEST(CyclesTest, AGainThatIsTheClocksIsGone) {
  const Fixture fixture = AtClocks(1500, 1530);  // The candidate seems 2 % faster.
  const auto cycles = CyclesJson(fixture.samples, fixture.rounds);
  ASSERT_EQ(cycles.count("s"), 1U);
  const Json& series = cycles.at("s");
  EXPECT_NEAR(series.at("L").get<double>(), 0, 1e-6);
  EXPECT_NEAR(series.at("base_megacycles").get<double>(), 2, 1e-5);
  EXPECT_NEAR(series.at("candidate_megacycles").get<double>(), 2, 1e-5);
  EXPECT_EQ(series.at("least_mhz"), 1500);
  EXPECT_EQ(series.at("most_mhz"), 1530);
}

TEST(CyclesTest, AtOneClockTheyAreTheTimes) {
  Fixture fixture = AtClocks(1500, 1500);
  for (auto& sample : fixture.samples) sample.ns = sample.arm == 'B' ? sample.ns * 97 / 100 : sample.ns;
  EXPECT_NEAR(CyclesJson(fixture.samples, fixture.rounds).at("s").at("L").get<double>(), -std::log(0.97), 1e-5);
}

TEST(CyclesTest, WithoutAClockThereAreNone) {
  Fixture fixture = AtClocks(1500, 1500);
  fixture.rounds[1].blocks[7]["after"]["sm_clock_mhz"] = nullptr;
  EXPECT_THAT(CyclesJson(fixture.samples, fixture.rounds), IsEmpty());
}

TEST(NoiseTest, CountsReasonsByArmAndOtherProcesses) {
  Fixture fixture = AtClocks(1500, 1500);
  Json& first = fixture.rounds[0].blocks[0];  // A.
  first["before"]["throttle_reasons"] = 0x4;
  first["after"]["throttle_reasons"] = 0x24;
  Json& second = fixture.rounds[0].blocks[1];  // B.
  second["after"]["throttle_reasons"] = 0x4;
  second["after"]["other_processes"] = 2;
  fixture.rounds[2].blocks[0]["before"]["other_processes"] = nullptr;
  fixture.rounds[2].blocks[0]["after"]["other_processes"] = nullptr;
  fixture.rounds[1].foreign_cpu_cores = 1.5;
  const Json noise = NoiseJson(fixture.rounds);
  EXPECT_EQ(noise.at("blocks"), 3 * kQuads * 4);
  EXPECT_EQ(noise.at("other_processes"), (Json{{"told", 3 * kQuads * 4 - 1}, {"seen", 1}, {"most", 2}}));
  EXPECT_EQ(noise.at("throttle_reasons").at("A"), (Json{{"power cap (software)", 1}, {"thermal (software)", 1}}));
  EXPECT_EQ(noise.at("throttle_reasons").at("B"), (Json{{"power cap (software)", 1}}));
  EXPECT_EQ(noise.at("most_foreign_cpu_cores"), 1.5);
  EXPECT_THAT(NoiseNotes(fixture.rounds, /*cpu=*/false),
              ElementsAre(HasSubstr("at 1 of 60 blocks, at most 2"), HasSubstr("At 1 of 60 blocks")));
}

// What came and went within a block is counted too.
TEST(NoiseTest, CountsReasonsBetweenABlocksEdges) {
  RoundData data;
  BlockRecord block{.series = "s", .arm = 'B'};
  block.reasons_between = 0x20;
  data.blocks = {block};
  auto evidence = DecodeEvidence(EncodeEvidence(data));
  ASSERT_TRUE(evidence.ok()) << evidence.status();
  EXPECT_EQ(evidence->blocks[0].at("throttle_reasons_between"), 0x20);
  EXPECT_EQ(NoiseJson({*evidence}).at("throttle_reasons").at("B"), (Json{{"thermal (software)", 1}}));
}

TEST(NoiseTest, NamesTheRoundsInWhichOthersUsedTheCpu) {
  Fixture fixture = AtClocks(1500, 1500);
  fixture.rounds[1].foreign_cpu_cores = 0.5;
  fixture.rounds[2].foreign_cpu_cores = 1.25;
  fixture.rounds[0].foreign_cpu_cores = 0.1;
  EXPECT_THAT(NoiseNotes(fixture.rounds, /*cpu=*/true),
              ElementsAre(HasSubstr("up to 1.25 cores busy during round(s) 1, 2:")));
}

TEST(NoiseTest, AQuietMachineNeedsNoWords) {
  const Fixture fixture = AtClocks(1500, 1500);
  EXPECT_THAT(NoiseNotes(fixture.rounds, /*cpu=*/false), IsEmpty());
  EXPECT_TRUE(NoiseJson(fixture.rounds).at("most_foreign_cpu_cores").is_null());
  EXPECT_THAT(NoiseNotes({}, /*cpu=*/true), IsEmpty());
}

}  // namespace
}  // namespace keval::server
