#include "server/job_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/field_error.h"
#include "server/job_spec.h"
#include "tests/support/job_fixtures.h"

namespace keval::server {
namespace {

using keval::testing::TestContext;
using keval::testing::TestShape;
using keval::testing::TestSpec;

constexpr char kPrimary[] = "64x8x100/float32/bias";
constexpr char kGuard[] = "32x8x200/float32/nobias";
constexpr char kControl[] = "ctl:64x8x100/float32/bias";

v1::BenchmarkSpec Spec() {
  v1::BenchmarkSpec spec = TestSpec();
  spec.mutable_procedure()->clear_quads();
  spec.mutable_procedure()->clear_timed_repetitions();
  auto normalized = NormalizeSpec(spec, TestContext());
  return *normalized;
}

v1::JobPlan PlanWithCallSeconds(const v1::BenchmarkSpec& spec, double seconds) {
  return MakePlan(spec, {.base_ns = {{kPrimary, seconds * 1e9}, {kGuard, 1e6}, {kControl, 1e6}}}, {});
}

TEST(JobPlanTest, SlowShapesTakeLess) {
  const auto spec = Spec();
  struct Case {
    double seconds;
    int timed, discarded, quads;
  };
  const Case cases[] = {
      {0.001, 5, 2, 8}, {0.05, 5, 2, 8}, {0.0626, 4, 2, 8}, {0.1, 3, 2, 8},  // 0.1 s is not yet slow.
      {0.11, 3, 1, 8},  {0.2, 2, 1, 8},  {0.26, 1, 1, 8},   {0.5, 1, 1, 8},  // A block of exactly 1 s.
      {0.51, 1, 1, 4},  {1.25, 1, 1, 4},
  };
  for (const Case& c : cases) {
    const v1::JobPlan plan = PlanWithCallSeconds(spec, c.seconds);
    EXPECT_EQ(plan.series(0).timed_repetitions(), c.timed) << c.seconds;
    EXPECT_EQ(plan.series(0).discarded_repetitions(), c.discarded) << c.seconds;
    EXPECT_EQ(plan.series(0).quads(), c.quads) << c.seconds;
  }
}

TEST(JobPlanTest, NeverTakesMoreThanTheSpecSays) {
  auto spec = Spec();
  spec.mutable_procedure()->set_timed_repetitions(2);
  spec.mutable_procedure()->set_quads(3);
  const v1::JobPlan plan = PlanWithCallSeconds(spec, 0.001);
  EXPECT_EQ(plan.series(0).timed_repetitions(), 2);
  EXPECT_EQ(plan.series(0).quads(), 3);
  EXPECT_EQ(PlanWithCallSeconds(spec, 1.25).series(0).quads(), 3);
}

TEST(JobPlanTest, PredictsDeviceSecondsToTheLastLook) {
  const auto spec = Spec();
  const v1::JobPlan plan = PlanWithCallSeconds(spec, 0.2);
  // Ten rounds of: 8 quads x 4 blocks x 3 calls of 0.2 s, and two series of 8 x 4 x 7 calls of 1 ms.
  EXPECT_NEAR(plan.predicted_device_seconds(), 10 * (8 * 4 * 3 * 0.2 + 2 * 8 * 4 * 7 * 0.001), 1e-9);
}

// What isn't timed takes the device all the same.
TEST(JobPlanTest, PredictsPreparationAndVerification) {
  auto spec = Spec();
  PilotData pilot;
  for (const char* series : {kPrimary, kGuard, kControl}) {
    pilot.base_ns[series] = 1e6;
    pilot.turns[series] = {.preparation = 0.5, .repetition = 0.003};
  }
  const double blocks = 8 * 4;
  const double series = 2 * 0.5 + blocks * 7 * 0.003;
  v1::JobPlan plan = MakePlan(spec, pilot, {});
  EXPECT_NEAR(plan.predicted_device_seconds(), 10 * 3 * series, 1e-9);
  spec.mutable_procedure()->set_process_mode(v1::PROCESS_MODE_SEQUENTIAL);
  plan = MakePlan(spec, pilot, {});
  EXPECT_NEAR(plan.predicted_device_seconds(), 10 * 3 * (series + blocks * 0.5), 1e-9);  // Each block prepares.
  spec.set_max_device_seconds(100);
  EXPECT_FALSE(CheckBudget(spec, plan).ok());
}

// Half of the blocks are the candidate's.
TEST(JobPlanTest, PredictsACandidateThatTakesLongerThanBase) {
  auto spec = Spec();
  PilotData pilot;
  for (const char* series : {kPrimary, kGuard, kControl}) {
    pilot.base_ns[series] = 1e6;
    pilot.turns[series] = {.preparation = 0.5, .repetition = 0.003};
  }
  pilot.candidate_turns[kPrimary] = {.preparation = 0.9, .repetition = 0.011};
  const double blocks = 8 * 4;
  const double equal = 2 * 0.5 + blocks * 7 * 0.003;
  const double slower = 0.5 + 0.9 + blocks / 2 * 7 * (0.003 + 0.011);
  v1::JobPlan plan = MakePlan(spec, pilot, {});
  EXPECT_NEAR(plan.predicted_device_seconds(), 10 * (slower + 2 * equal), 1e-9);
  spec.mutable_procedure()->set_process_mode(v1::PROCESS_MODE_SEQUENTIAL);
  plan = MakePlan(spec, pilot, {});
  EXPECT_NEAR(plan.predicted_device_seconds(), 10 * (slower + 2 * equal + blocks / 2 * (0.5 * 5 + 0.9)), 1e-9);
}

TEST(JobPlanTest, RefusesAPlanOverItsBudgetWithBothNumbers) {
  auto spec = Spec();
  spec.set_max_device_seconds(100);
  EXPECT_TRUE(CheckBudget(spec, PlanWithCallSeconds(spec, 0.05)).ok() == false);
  const absl::Status status = CheckBudget(spec, PlanWithCallSeconds(spec, 0.2));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()),
            "max_device_seconds: the plan predicts 196.5 device seconds to the last look, the budget is 100");
  EXPECT_TRUE(CheckBudget(spec, PlanWithCallSeconds(spec, 0.01)).ok());
}

TEST(JobPlanTest, MarginsComeFromNameThenRoleThenCalibrationThenDefault) {
  auto spec = Spec();
  (*spec.mutable_margins())["primary"] = 0.03;
  (*spec.mutable_margins())[kPrimary] = 0.02;
  auto plan = MakePlan(spec, {}, {});
  EXPECT_EQ(plan.series(0).delta(), 0.02);
  EXPECT_EQ(plan.series(0).delta_source(), std::string("spec:") + kPrimary);
  EXPECT_EQ(plan.series(1).delta(), 0.01);
  EXPECT_EQ(plan.series(1).delta_source(), "default");
  spec.mutable_margins()->erase(kPrimary);
  NoiseRecord noise;
  noise.by_series[kGuard].means = {0.001, -0.004, 0.002};
  noise.by_series[kGuard].source.set_origin("server");
  noise.unused = {"one that isn't used"};
  plan = MakePlan(spec, {}, noise);
  EXPECT_EQ(plan.series(0).delta(), 0.03);
  EXPECT_EQ(plan.series(0).delta_source(), "spec:primary");
  EXPECT_EQ(plan.series(1).delta(), 0.008);
  EXPECT_EQ(plan.series(1).delta_source(), "calibration");
  EXPECT_EQ(plan.series(1).delta_calibration().origin(), "server");
  EXPECT_FALSE(plan.series(0).has_delta_calibration());
  EXPECT_THAT(plan.unused_calibrations(), ::testing::ElementsAre("one that isn't used"));
  EXPECT_EQ(plan.series(2).delta(), 0);  // A control has none.
}

TEST(JobPlanTest, ListsSeriesInOrderWithTraffic) {
  const v1::JobPlan plan = MakePlan(Spec(), {}, {});
  ASSERT_EQ(plan.series_size(), 3);
  EXPECT_EQ(plan.series(0).series(), kPrimary);
  EXPECT_EQ(plan.series(1).series(), kGuard);
  EXPECT_EQ(plan.series(2).series(), kControl);
  EXPECT_EQ(plan.series(2).role(), "control");
  EXPECT_EQ(plan.series(0).traffic().chunks(), 1);
  EXPECT_EQ(plan.series(0).traffic().saving_bytes(), 8 * 100 * 8);
}

TEST(JobPlanTest, TheHeadlineShapeMovesFourGibibytesLess) {  // CONTRACT.md's static traffic model.
  v1::BenchmarkSpec spec;
  *spec.add_primaries() = TestShape(4096, 2048, 32768);
  const auto plan = MakePlan(*NormalizeSpec(spec, TestContext()), {}, {});
  EXPECT_EQ(plan.series(0).traffic().chunks(), 8);
  EXPECT_EQ(plan.series(0).traffic().saving_bytes(), std::int64_t{4} << 30);
  EXPECT_EQ(plan.series(0).traffic().add_ops_saved(), 8);
}

TEST(JobPlanTest, ConfigHoldsEveryMarginByName) {
  const auto spec = Spec();
  const verdict::Config config = VerdictConfig(spec, MakePlan(spec, {}, {}));
  EXPECT_TRUE(verdict::ValidateConfig(config).ok());
  EXPECT_THAT(config.looks, ::testing::ElementsAre(6, 10));
  EXPECT_THAT(config.delta,
              ::testing::UnorderedElementsAre(::testing::Pair(kPrimary, 0.01), ::testing::Pair(kGuard, 0.01)));
}

TEST(JobPlanTest, DiagnosticsForceChunksOnPrimariesAndLeaveControlsAlone) {
  auto spec = Spec();
  for (const int chunks : {1, 2, 4, 8}) spec.mutable_diagnostics()->add_chunk_sweep(chunks);
  spec.mutable_diagnostics()->set_backward_only(true);
  spec.mutable_diagnostics()->set_isolated_weight_gradient(true);
  const auto runs = PlannedDiagnostics(spec, MakePlan(spec, {}, {}));
  std::vector<std::string> names;
  for (const auto& run : runs) names.push_back(run.name);
  const std::string p = kPrimary;
  const std::string g = kGuard;
  EXPECT_THAT(names, ::testing::ElementsAre(p + "/backward", p + "/weight_gradient", p + "/chunks=1", p + "/chunks=2",
                                            p + "/chunks=4", p + "/chunks=8", g + "/backward", g + "/weight_gradient"));
  EXPECT_EQ(runs[5].shape.chunk_elems, 8 * 100);  // 64 tokens in 8 chunks of 8.
  EXPECT_EQ(runs[0].region, DiagnosticRegion::kBackward);
}

}  // namespace
}  // namespace keval::server
