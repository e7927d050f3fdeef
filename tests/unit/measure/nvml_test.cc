#include "core/measure/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/linear_logp/gpu_uuid.h"

namespace keval::measure {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kFirst[] = "GPU-00000000-0000-0000-0000-000000000000";
constexpr char kSecond[] = "GPU-12345678-1234-1234-1234-123456789abc";

class NvmlTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("KEVAL_NVML_LIBRARY", KEVAL_FAKE_NVML, 1); }
  void TearDown() override { unsetenv("KEVAL_NVML_LIBRARY"); }
};

TEST_F(NvmlTest, ReadsTheDeviceWithThatUuidAndNoOther) {
  auto nvml = Nvml::Open(kSecond);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const DeviceReading reading = (*nvml)->Read();
  EXPECT_EQ(reading.sm_clock_mhz, 1410);
  EXPECT_EQ(reading.power_watts, 699.5);
  EXPECT_EQ(reading.temperature_celsius, 87);
  EXPECT_EQ(reading.throttle_reasons, 0x24U);
}

TEST(GpuUuidTest, IsWrittenAsNvmlDoes) {
  EXPECT_EQ(linear_logp::GpuUuidText(absl::HexStringToBytes("12345678123412341234123456789abc")), kSecond);
  EXPECT_EQ(linear_logp::GpuUuidText(std::string(16, '\xff')), "GPU-ffffffff-ffff-ffff-ffff-ffffffffffff");
}

// CUDA numbers the devices that CUDA_VISIBLE_DEVICES names, in its order, whether it names them by number or by UUID
// (measure_gpu_test tries both on a device). All that keval takes from CUDA is device i's UUID.
TEST_F(NvmlTest, FindsCudasDevicesInWhateverOrderCudaHasThem) {
  const std::pair<const char*, const char*> cuda_order[] = {{"99999999999999999999999999999999", "third"},
                                                            {"00000000000000000000000000000000", "first"},
                                                            {"12345678123412341234123456789abc", "second"}};
  for (const auto& [bytes, model] : cuda_order) {
    const auto nvml = Nvml::Open(linear_logp::GpuUuidText(absl::HexStringToBytes(bytes)));
    ASSERT_TRUE(nvml.ok()) << nvml.status();
    EXPECT_THAT((*nvml)->Describe().at("gpu_model"), HasSubstr(model));
  }
}

TEST_F(NvmlTest, WhatTheDeviceDoesNotTellIsNan) {
  auto nvml = Nvml::Open(kFirst);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  EXPECT_TRUE(std::isnan((*nvml)->Read().memory_clock_mhz));
  EXPECT_EQ((*nvml)->Describe().at("gpu_memory_clock"), "not told");
}

TEST_F(NvmlTest, FindsAllProcessesThoughTheyAreMoreThanExpected) {
  auto nvml = Nvml::Open(kSecond);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const DeviceReading reading = (*nvml)->Read();
  EXPECT_TRUE(reading.processes_known);
  ASSERT_EQ(reading.process_ids.size(), 40U);
  EXPECT_EQ(reading.process_ids[0], static_cast<unsigned>(getpid()));
  EXPECT_EQ(reading.process_ids[1], 4242U);
}

TEST_F(NvmlTest, DescribesInPrintableText) {
  auto nvml = Nvml::Open(kSecond);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const auto facts = (*nvml)->Describe();
  EXPECT_EQ(facts.at("driver_version"), "580.00");
  EXPECT_THAT(facts.at("gpu_model"), HasSubstr("second"));
  EXPECT_THAT(facts.at("gpu_model"), Not(HasSubstr("\x1b")));
  EXPECT_EQ(facts.at("gpu_throttle_reasons"), "power cap (software), thermal (software)");
}

TEST_F(NvmlTest, AnAccountOfHeatThatGrewIsAReasonBetween) {
  auto nvml = Nvml::Open(kFirst);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const DeviceReading without = (*nvml)->Read();
  EXPECT_FALSE(without.thermal_violation.has_value());
  setenv("KEVAL_FAKE_NVML_VIOLATION", "12000", 1);
  const DeviceReading before = (*nvml)->Read();
  EXPECT_EQ(before.thermal_violation, 12000U);
  EXPECT_FALSE(IsThrottled(ReasonsBetween(before, (*nvml)->Read(), 0)));
  setenv("KEVAL_FAKE_NVML_VIOLATION", "12001", 1);
  const DeviceReading after = (*nvml)->Read();
  unsetenv("KEVAL_FAKE_NVML_VIOLATION");
  EXPECT_FALSE(IsThrottled(before.throttle_reasons | after.throttle_reasons));  // At the edges nothing shows.
  EXPECT_TRUE(IsThrottled(ReasonsBetween(before, after, 0)));
  EXPECT_EQ(ReasonsBetween(before, after, 0x4), 0x24U);
  EXPECT_EQ(ReasonsBetween(without, after, 0x4), 0x4U);
  EXPECT_EQ(ReasonsBetween(after, before, 0), 0U);  // The driver was loaded anew.
}

TEST_F(NvmlTest, ThrottleReasonsAreAskedForAlone) {
  auto nvml = Nvml::Open(kSecond);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  EXPECT_EQ((*nvml)->ThrottleReasons(), 0x24U);
}

TEST_F(NvmlTest, TellsALostDevice) {
  auto nvml = Nvml::Open(kFirst);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  EXPECT_FALSE((*nvml)->IsLost());
  for (const auto& [code, lost] : {std::pair("15", true), std::pair("16", true), std::pair("999", false)}) {
    setenv("KEVAL_FAKE_NVML_LOST", code, 1);
    EXPECT_EQ((*nvml)->IsLost(), lost) << code;
  }
  unsetenv("KEVAL_FAKE_NVML_LOST");
}

TEST(OtherProcessesTest, AreThoseThatAreNotOurs) {
  DeviceReading reading;
  reading.processes_known = true;
  reading.process_ids = {10, 20, 30, 40};
  EXPECT_EQ(OtherProcesses(reading, {40, 10, 20, 30}), 0);  // The server and its workers.
  EXPECT_EQ(OtherProcesses(reading, {10, 20, 30, 99}), 1);
  EXPECT_EQ(OtherProcesses(reading, {10, 10, 20}), 2);
  EXPECT_EQ(OtherProcesses(reading, {99}), std::nullopt);  // Numbers of another namespace.
  reading.process_ids = {10, 10, 20, 50, 50};              // With two contexts there.
  EXPECT_EQ(OtherProcesses(reading, {10, 20}), 1);
  reading.processes_known = false;
  EXPECT_EQ(OtherProcesses(reading, {10}), std::nullopt);
}

TEST(OtherProcessesTest, AreNamed) {
  DeviceReading reading;
  EXPECT_EQ(ProcessesText(reading), "not told");
  reading.processes_known = true;
  EXPECT_EQ(ProcessesText(reading), "0 with a context");
  constexpr unsigned kNobody = 4'194'305;  // Beyond the kernel's largest.
  reading.process_ids = {static_cast<unsigned>(getpid()), kNobody};
  EXPECT_EQ(ProcessesText(reading),
            absl::StrCat("2 with a context: ", getpid(), " nvml_test, ", kNobody, " (name not told)"));
}

TEST_F(NvmlTest, UnknownUuidIsNotFound) {
  const auto nvml = Nvml::Open("GPU-ffffffff-ffff-ffff-ffff-ffffffffffff");
  EXPECT_EQ(nvml.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(nvml.status().message()),
              HasSubstr("NVML knows no device GPU-ffffffff-ffff-ffff-ffff-ffffffffffff: Not Found"));
}

TEST_F(NvmlTest, NoLibraryIsUnavailable) {
  setenv("KEVAL_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1", 1);
  EXPECT_EQ(Nvml::Open(kFirst).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(NvmlTest, AnotherLibraryIsUnavailable) {
  setenv("KEVAL_NVML_LIBRARY", "libc.so.6", 1);
  EXPECT_EQ(Nvml::Open(kFirst).status().code(), absl::StatusCode::kUnavailable);
}

TEST(ThrottleReasonsTest, SlowdownsThrottleAndThePowerCapAloneDoesNot) {
  EXPECT_FALSE(IsThrottled(0));
  EXPECT_FALSE(IsThrottled(0x1 | 0x2 | 0x4 | 0x10 | 0x100));
  for (const std::uint64_t bit : {0x8, 0x20, 0x40, 0x80}) {
    EXPECT_TRUE(IsThrottled(bit | 0x4)) << bit;
  }
  EXPECT_EQ(ThrottleReasonsText(0), "none");
  EXPECT_EQ(ThrottleReasonsText(0x40 | 0x1000), "thermal (hardware), bits 0x1000");
}

}  // namespace
}  // namespace keval::measure
