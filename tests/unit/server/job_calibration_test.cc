#include "server/job_calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>

#include "base/field_error.h"
#include "server/job_spec.h"
#include "tests/support/job_fixtures.h"
#include "tests/support/temp_dir.h"

namespace keval::server {
namespace {

using keval::testing::TempDir;
using keval::testing::TestContext;
using keval::testing::TestSpec;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPrimary[] = "64x8x100/float32/bias";
constexpr char kGuard[] = "32x8x200/float32/nobias";

v1::DeviceInfo Device() {
  v1::DeviceInfo device;
  device.set_name("cuda:0");
  device.set_model("NVIDIA H200");
  device.set_uuid("GPU-1");
  return device;
}

v1::MarginCalibration* AddCalibration(v1::BenchmarkSpec* spec, const std::string& series,
                                      const std::string& uuid = "GPU-1") {
  v1::MarginCalibration* const calibration = spec->add_margin_calibrations();
  calibration->set_sha256(std::string(64, 'a'));
  calibration->set_device("NVIDIA H200");
  calibration->set_uuid(uuid);
  calibration->set_series(series);
  calibration->add_means(0.004);
  calibration->add_means(-0.001);
  return calibration;
}

class FindNoiseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = JobStore::Open(folder_.path());
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  // The test's spec with defaults.
  static v1::BenchmarkSpec Spec() { return *NormalizeSpec(TestSpec(), TestContext()); }
  NoiseRecord Find(const v1::BenchmarkSpec& spec) {
    auto record = FindNoise(spec, Device(), store_.get());
    EXPECT_TRUE(record.ok()) << record.status();
    return record.value_or(NoiseRecord());
  }

  TempDir folder_;
  std::unique_ptr<JobStore> store_;
};

TEST_F(FindNoiseTest, OfADeviceAndShapeThatNobodyCalibratedIsNothing) {
  const NoiseRecord record = Find(Spec());
  EXPECT_TRUE(record.by_series.empty());
  EXPECT_TRUE(record.unused.empty());
}

TEST_F(FindNoiseTest, ComesFromTheSpecsCalibrationOfThisDeviceAndShape) {
  v1::BenchmarkSpec spec = Spec();
  AddCalibration(&spec, kPrimary);
  const NoiseRecord record = Find(spec);
  ASSERT_EQ(record.by_series.count(kPrimary), 1U);
  const KnownNoise& noise = record.by_series.at(kPrimary);
  EXPECT_THAT(noise.means, ElementsAre(0.004, -0.001));
  EXPECT_EQ(noise.source.origin(), "spec");
  EXPECT_EQ(noise.source.sha256(), std::string(64, 'a'));
  EXPECT_EQ(noise.source.rounds(), 12);
  EXPECT_EQ(noise.source.device(), "NVIDIA H200");
  EXPECT_EQ(noise.source.uuid(), "GPU-1");
  EXPECT_EQ(record.by_series.count(kGuard), 0U);
  EXPECT_TRUE(record.unused.empty());
}

TEST_F(FindNoiseTest, LeavesOutWhatDoesNotFitAndSaysWhy) {
  v1::BenchmarkSpec spec = Spec();
  AddCalibration(&spec, kPrimary, "GPU-2");
  AddCalibration(&spec, kPrimary)->set_device("NVIDIA H100");
  AddCalibration(&spec, "7x7x7/float32/bias");
  AddCalibration(&spec, std::string("ctl:") + kPrimary);
  AddCalibration(&spec, kGuard);
  (*spec.mutable_margins())["guard"] = 0.02;
  const NoiseRecord record = Find(spec);
  EXPECT_TRUE(record.by_series.empty());
  EXPECT_THAT(record.unused,
              ElementsAre(AllOf(HasSubstr(std::string(64, 'a')), HasSubstr(kPrimary),
                                HasSubstr("collected on NVIDIA H200 GPU-2, this job runs on NVIDIA H200 GPU-1")),
                          HasSubstr("collected on NVIDIA H100 GPU-1"), HasSubstr("no primary or guard"),
                          HasSubstr("no primary or guard"), HasSubstr("own margin goes first")));
}

TEST(CheckMarginCalibrations, NamesTheFieldThatCantBe) {
  struct Case {
    std::function<void(v1::BenchmarkSpec*)> spoil;
    const char* field;
  };
  const auto first = [](v1::BenchmarkSpec* spec) { return spec->mutable_margin_calibrations(0); };
  const Case cases[] = {
      {[&](auto* spec) { first(spec)->set_sha256("abc"); }, "margin_calibrations[0].sha256"},
      {[&](auto* spec) { first(spec)->set_sha256(std::string(64, 'g')); }, "margin_calibrations[0].sha256"},
      {[&](auto* spec) { first(spec)->set_device(std::string(257, 'x')); }, "margin_calibrations[0].device"},
      {[&](auto* spec) { first(spec)->set_uuid("\xff"); }, "margin_calibrations[0].uuid"},
      {[&](auto* spec) { first(spec)->clear_means(); }, "margin_calibrations[0].means"},
      {[&](auto* spec) { first(spec)->add_means(std::nan("")); }, "margin_calibrations[0].means"},
      {[&](auto* spec) { first(spec)->add_means(-1.5); }, "margin_calibrations[0].means"},
      {[](auto* spec) { AddCalibration(spec, kPrimary); }, "margin_calibrations[1]"},
      {[](auto* spec) {
         for (int i = 0; i < 64; ++i) AddCalibration(spec, std::to_string(i));
       },
       "margin_calibrations"}};
  for (const Case& one : cases) {
    v1::BenchmarkSpec spec = TestSpec();
    AddCalibration(&spec, kPrimary);
    ASSERT_TRUE(NormalizeSpec(spec, TestContext()).ok());
    one.spoil(&spec);
    const auto violation = GetFieldViolation(NormalizeSpec(spec, TestContext()).status());
    ASSERT_TRUE(violation.has_value()) << one.field;
    EXPECT_EQ(violation->field, one.field);
  }
}

}  // namespace
}  // namespace keval::server
