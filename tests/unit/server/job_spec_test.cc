#include "server/job_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "server/job_target.h"
#include "tests/support/job_fixtures.h"

namespace keval::server {
namespace {

using keval::testing::TestContext;
using keval::testing::TestShape;
using keval::testing::TestSpec;
using ::testing::HasSubstr;

TEST(JobSpecTest, FillsEveryDefault) {
  v1::BenchmarkSpec spec;
  *spec.add_primaries() = TestShape(4096, 2048, 32768);
  const auto out = NormalizeSpec(spec, TestContext());
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->base().variant(), "portable_matmul_add");
  EXPECT_EQ(out->candidate().variant(), "portable_addmm");
  ASSERT_EQ(out->controls_size(), 1);  // The first primary.
  EXPECT_EQ(SeriesName(out->controls(0)), "4096x2048x32768/float32/bias");
  EXPECT_EQ(out->primaries(0).chunk_elems(), std::int64_t{1} << 24);
  EXPECT_EQ(out->primaries(0).autocast(), v1::AUTOCAST_NONE);
  EXPECT_THAT(out->procedure().looks(), ::testing::ElementsAre(6, 10, 16, 24));
  EXPECT_THAT(out->procedure().a_sup(), ::testing::ElementsAre(.002, .002, .003, .003));
  EXPECT_THAT(out->procedure().a_eq(), ::testing::ElementsAre(.010, .010, .015, .015));
  EXPECT_THAT(out->procedure().a_ctl(), ::testing::ElementsAre(.001, .001, .0015, .0015));
  EXPECT_EQ(out->procedure().quads(), 8);
  EXPECT_EQ(out->procedure().timed_repetitions(), 5);
  EXPECT_EQ(out->procedure().discarded_repetitions(), 2);
  EXPECT_EQ(out->procedure().worker_threads(), 1);
  EXPECT_EQ(out->procedure().hang_timeout_seconds(), 120);
  EXPECT_EQ(out->max_device_seconds(), 3600);
}

TEST(JobSpecTest, IsIdempotent) {
  const auto once = NormalizeSpec(TestSpec(), TestContext());
  ASSERT_TRUE(once.ok()) << once.status();
  const auto twice = NormalizeSpec(*once, TestContext());
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_EQ(SpecDigest(*once), SpecDigest(*twice));
}

TEST(JobSpecTest, BothArmsOfACalibrationAreBase) {
  v1::BenchmarkSpec spec = TestSpec();
  spec.mutable_base()->set_variant("materialized");
  spec.mutable_calibration()->set_effect(-0.01);
  const auto out = NormalizeSpec(spec, TestContext());
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->candidate().variant(), "materialized");
  EXPECT_EQ(ToJobArms(*out).injected_effect, -0.01);
  spec.mutable_candidate()->set_variant("portable_addmm");
  EXPECT_EQ(GetFieldViolation(NormalizeSpec(spec, TestContext()).status())->field, "candidate.variant");
  spec.mutable_candidate()->set_variant("materialized");
  EXPECT_TRUE(NormalizeSpec(spec, TestContext()).ok());
  for (const double effect :
       {0.51, -0.51, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    spec.mutable_calibration()->set_effect(effect);
    EXPECT_EQ(GetFieldViolation(NormalizeSpec(spec, TestContext()).status())->field, "calibration.effect") << effect;
  }
}

TEST(JobSpecTest, ACalibrationIsAnotherSpec) {
  v1::BenchmarkSpec plain = TestSpec();
  plain.mutable_candidate()->set_variant("portable_matmul_add");
  v1::BenchmarkSpec calibration = plain;
  calibration.mutable_calibration();
  EXPECT_NE(SpecDigest(*NormalizeSpec(plain, TestContext())), SpecDigest(*NormalizeSpec(calibration, TestContext())));
}

TEST(JobSpecTest, DefaultsAndTheirValuesHaveOneDigest) {
  v1::BenchmarkSpec written = TestSpec();
  written.mutable_base()->set_variant("portable_matmul_add");
  written.mutable_primaries(0)->set_dtype(v1::DATA_TYPE_FLOAT32);
  (*written.mutable_margins())["guard"] = 0.01;
  (*written.mutable_margins())["primary"] = 0.02;
  v1::BenchmarkSpec left_out = TestSpec();
  (*left_out.mutable_margins())["primary"] = 2e-2;
  (*left_out.mutable_margins())["guard"] = 1e-2;
  const auto context = TestContext();
  EXPECT_EQ(SpecDigest(*NormalizeSpec(written, context)), SpecDigest(*NormalizeSpec(left_out, context)));
  left_out.set_seed(1);
  EXPECT_NE(SpecDigest(*NormalizeSpec(written, context)), SpecDigest(*NormalizeSpec(left_out, context)));
}

TEST(JobSpecTest, NamesSeriesByWhatTellsThemApart) {
  v1::Shape shape = TestShape(4096, 2048, 50257, false);
  shape.set_dtype(v1::DATA_TYPE_BFLOAT16);
  EXPECT_EQ(SeriesName(shape), "4096x2048x50257/bfloat16/nobias");
  shape.set_autocast(v1::AUTOCAST_FLOAT16);
  shape.set_chunk_elems(1 << 20);
  EXPECT_EQ(SeriesName(shape), "4096x2048x50257/bfloat16/nobias/autocast=float16/chunk_elems=1048576");
}

struct Refusal {
  const char* field;
  std::function<void(v1::BenchmarkSpec*)> spoil;
  // What a failure says, in place of its bytes.
  friend void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.field; }
};

class JobSpecRefusalTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(JobSpecRefusalTest, NamesTheField) {
  v1::BenchmarkSpec spec = TestSpec();
  *spec.add_primaries() = TestShape(16, 8, 64);
  *spec.add_primaries() = TestShape(17, 8, 64);
  GetParam().spoil(&spec);
  const auto out = NormalizeSpec(spec, TestContext());
  ASSERT_EQ(out.status().code(), absl::StatusCode::kInvalidArgument) << out.status();
  const auto violation = GetFieldViolation(out.status());
  ASSERT_TRUE(violation.has_value()) << out.status();
  EXPECT_EQ(violation->field, GetParam().field) << out.status();
  EXPECT_FALSE(violation->value.empty()) << out.status();
  EXPECT_FALSE(violation->limit.empty()) << out.status();
  EXPECT_THAT(std::string(out.status().message()), HasSubstr(GetParam().field));
}

constexpr std::int64_t kHuge = std::int64_t{1} << 40;

INSTANTIATE_TEST_SUITE_P(
    All, JobSpecRefusalTest,
    ::testing::Values(
        Refusal{"primaries", [](auto* s) { s->clear_primaries(); }},
        Refusal{"primaries[2].vocab_size", [](auto* s) { s->mutable_primaries(2)->set_vocab_size(0); }},
        Refusal{"primaries[1].num_tokens", [](auto* s) { s->mutable_primaries(1)->set_num_tokens(-4); }},
        Refusal{"guards[0].hidden_size", [](auto* s) { s->mutable_guards(0)->set_hidden_size(0); }},
        Refusal{"primaries[0].num_tokens", [](auto* s) { s->mutable_primaries(0)->set_num_tokens(kHuge * 65536); }},
        Refusal{"primaries[0].vocab_size",
                [](auto* s) {
                  s->mutable_primaries(0)->set_num_tokens(1);
                  s->mutable_primaries(0)->set_vocab_size(kHuge);
                  s->mutable_primaries(0)->set_hidden_size(kHuge);
                }},
        Refusal{"primaries[0].chunk_elems", [](auto* s) { s->mutable_primaries(0)->set_chunk_elems(-1); }},
        Refusal{"primaries[0].dtype", [](auto* s) { s->mutable_primaries(0)->set_dtype(v1::DATA_TYPE_INT32); }},
        Refusal{"guards[0].dtype",
                [](auto* s) { s->mutable_guards(0)->set_dtype(static_cast<v1::DataType>(77)); }},
        Refusal{"primaries[0].autocast",
                [](auto* s) { s->mutable_primaries(0)->set_autocast(static_cast<v1::Autocast>(9)); }},
        Refusal{"primaries[0].autocast",
                [](auto* s) {
                  s->mutable_primaries(0)->set_dtype(v1::DATA_TYPE_FLOAT64);
                  s->mutable_primaries(0)->set_autocast(v1::AUTOCAST_BFLOAT16);
                }},
        Refusal{"display_name", [](auto* s) { s->set_display_name(std::string(257, 'x')); }},
        Refusal{"display_name", [](auto* s) { s->set_display_name("bad \xFF byte"); }},
        Refusal{"primaries[0].display_name",
                [](auto* s) { s->mutable_primaries(0)->set_display_name(std::string(300, 'x')); }},
        Refusal{"guards[1]", [](auto* s) { *s->add_guards() = s->primaries(0); }},
        Refusal{"controls[1]",
                [](auto* s) {
                  *s->add_controls() = s->primaries(0);
                  *s->add_controls() = s->primaries(0);
                }},
        Refusal{"base.variant", [](auto* s) { s->mutable_base()->set_variant("no\x1b[31mne"); }},
        Refusal{"candidate.variant", [](auto* s) { s->mutable_candidate()->set_variant("sweepish"); }},
        Refusal{"target.min_compute_capability",
                [](auto* s) { s->mutable_target()->set_min_compute_capability("nine"); }},
        Refusal{"margins[\"control\"]", [](auto* s) { (*s->mutable_margins())["control"] = 0.01; }},
        Refusal{"margins[\"guard\"]", [](auto* s) { (*s->mutable_margins())["guard"] = 0; }},
        Refusal{"margins[\"primary\"]", [](auto* s) { (*s->mutable_margins())["primary"] = 0.51; }},
        Refusal{"margins[\"primary\"]",
                [](auto* s) { (*s->mutable_margins())["primary"] = std::numeric_limits<double>::quiet_NaN(); }},
        Refusal{"procedure.looks[0]", [](auto* s) { s->mutable_procedure()->set_looks(0, 2); }},
        Refusal{"procedure.looks[1]", [](auto* s) { s->mutable_procedure()->set_looks(1, 6); }},
        Refusal{"procedure.looks[1]", [](auto* s) { s->mutable_procedure()->set_looks(1, 201); }},
        Refusal{"procedure.looks[0]",
                [](auto* s) {
                  s->mutable_procedure()->clear_looks();
                  s->mutable_procedure()->add_looks(3);
                }},
        Refusal{"procedure.a_sup", [](auto* s) { s->mutable_procedure()->add_a_sup(.002); }},
        Refusal{"procedure.a_ctl[1]",
                [](auto* s) {
                  s->mutable_procedure()->add_a_ctl(1e-9);
                  s->mutable_procedure()->add_a_ctl(1e-17);
                }},
        Refusal{"procedure.a_eq[1]",
                [](auto* s) {
                  s->mutable_procedure()->add_a_eq(.002);
                  s->mutable_procedure()->add_a_eq(.26);
                }},
        Refusal{"procedure.a_sup",
                [](auto* s) {
                  for (const int look : {11, 12, 13}) s->mutable_procedure()->add_looks(look);
                }},
        Refusal{"procedure.quads", [](auto* s) { s->mutable_procedure()->set_quads(2); }},
        Refusal{"procedure.timed_repetitions", [](auto* s) { s->mutable_procedure()->set_timed_repetitions(101); }},
        Refusal{"procedure.discarded_repetitions",
                [](auto* s) { s->mutable_procedure()->set_discarded_repetitions(-1); }},
        Refusal{"procedure.worker_threads", [](auto* s) { s->mutable_procedure()->set_worker_threads(5000); }},
        Refusal{"procedure.hang_timeout_seconds",
                [](auto* s) {
                  s->mutable_procedure()->set_hang_timeout_seconds(std::numeric_limits<double>::quiet_NaN());
                }},
        Refusal{"diagnostics.chunk_sweep[1]",
                [](auto* s) {
                  s->mutable_diagnostics()->add_chunk_sweep(1);
                  s->mutable_diagnostics()->add_chunk_sweep(17);
                }},
        Refusal{"diagnostics.chunk_sweep[0]", [](auto* s) { s->mutable_diagnostics()->add_chunk_sweep(0); }},
        // 17 tokens make 5 chunks of 4 or 6 of 3, never 7.
        Refusal{"diagnostics.chunk_sweep[0]", [](auto* s) { s->mutable_diagnostics()->add_chunk_sweep(7); }},
        Refusal{"diagnostics.chunk_sweep[1]",
                [](auto* s) {
                  s->mutable_diagnostics()->add_chunk_sweep(2);
                  s->mutable_diagnostics()->add_chunk_sweep(2);
                }},
        Refusal{"max_device_seconds", [](auto* s) { s->set_max_device_seconds(3601); }},
        Refusal{"max_device_seconds", [](auto* s) { s->set_max_device_seconds(-1); }}),
    [](const auto& info) {
      std::string name = absl::StrCat(info.index, "_", info.param.field);
      std::replace_if(
          name.begin(), name.end(), [](char c) { return !absl::ascii_isalnum(static_cast<unsigned char>(c)); }, '_');
      return name;
    });

TEST(JobSpecTest, RefusesAMillionShapesAtOnce) {
  v1::BenchmarkSpec spec;
  for (int i = 0; i < 1'000'000; ++i) spec.add_guards()->set_num_tokens(i);
  *spec.add_primaries() = TestShape(4, 4, 4);
  const auto start = std::chrono::steady_clock::now();
  const auto out = NormalizeSpec(spec, TestContext());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
  EXPECT_EQ(out.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetFieldViolation(out.status())->field, "guards");
  EXPECT_THAT(std::string(out.status().message()), HasSubstr("1000000"));
}

TEST(JobSpecTest, RefusesAMillionMarginsAtOnce) {
  v1::BenchmarkSpec spec = TestSpec();
  for (int i = 0; i < 1'000'000; ++i) (*spec.mutable_margins())[std::to_string(i)] = 0.01;
  EXPECT_EQ(GetFieldViolation(NormalizeSpec(spec, TestContext()).status())->field, "margins");
}

TEST(JobTargetTest, ChoosesTheFirstBenchmarkDevice) {
  auto context = TestContext();
  context.devices[0].set_runs_benchmarks(false);
  auto spec = *NormalizeSpec(TestSpec(), context);
  ASSERT_TRUE(ResolveTarget(context, &spec).ok());
  EXPECT_EQ(spec.target().device(), "cuda:0");
}

// Returns the field that the target's refusal names, "" when there is none.
std::string RefusedTarget(const SpecContext& context, const std::function<void(v1::BenchmarkSpec*)>& spoil) {
  v1::BenchmarkSpec spec = TestSpec();
  spoil(&spec);
  auto normalized = NormalizeSpec(spec, context);
  EXPECT_TRUE(normalized.ok()) << normalized.status();
  const absl::Status status = ResolveTarget(context, &*normalized);
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  return GetFieldViolation(status).value_or(FieldViolation{}).field;
}

TEST(JobTargetTest, SaysWhatTheDeviceCannotDo) {
  auto context = TestContext();
  EXPECT_EQ(RefusedTarget(context, [](auto* s) { s->mutable_target()->set_device("cuda:7"); }), "target.device");
  EXPECT_EQ(RefusedTarget(context, [](auto* s) { s->mutable_target()->set_min_compute_capability("8.0"); }),
            "target.min_compute_capability");  // A CPU has none.
  const auto on_gpu = [](const char* capability) {
    return [capability](v1::BenchmarkSpec* s) {
      s->mutable_target()->set_device("cuda:0");
      s->mutable_target()->set_min_compute_capability(capability);
    };
  };
  EXPECT_EQ(RefusedTarget(context, on_gpu("10.0")), "target.min_compute_capability");
  EXPECT_EQ(RefusedTarget(context, on_gpu("9.0")), "");
  EXPECT_EQ(RefusedTarget(context, on_gpu("8.6")), "");
  EXPECT_EQ(RefusedTarget(context,
                          [](auto* s) {
                            s->mutable_target()->set_device("cuda:0");
                            s->mutable_guards(0)->set_dtype(v1::DATA_TYPE_FLOAT64);
                          }),
            "guards[0].dtype");
  EXPECT_EQ(RefusedTarget(context, [](auto* s) { *s->mutable_primaries(0) = TestShape(64, 1 << 16, 1 << 20); }),
            "primaries[0]");  // 256 GiB of weight.
  context.variants[1].add_devices("cuda");
  EXPECT_EQ(RefusedTarget(context, [](auto*) {}), "candidate.variant");
}

TEST(JobTargetTest, RefusesWhatNoDeviceCouldFinishInTime) {
  const auto context = TestContext();
  v1::BenchmarkSpec spec = TestSpec();
  *spec.mutable_primaries(0) = TestShape(1 << 15, 2048, 1 << 15);  // Which fits in memory.
  spec.set_max_device_seconds(5);
  auto normalized = *NormalizeSpec(spec, context);
  const absl::Status status = ResolveTarget(context, &normalized);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetFieldViolation(status)->field, "max_device_seconds");
  EXPECT_THAT(std::string(status.message()), HasSubstr("its budget is 5"));
}

}  // namespace
}  // namespace keval::server
