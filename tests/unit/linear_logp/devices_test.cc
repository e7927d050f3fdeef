// Devices by name, the host's memory under control groups, and the registry's list.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "base/field_error.h"
#include "core/linear_logp/cuda_device.h"
#include "core/linear_logp/engine.h"
#include "core/linear_logp/host_memory.h"
#include "tests/support/temp_dir.h"

namespace keval::linear_logp {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TEST(DevicesTest, NamesReadBackAndOthersAreRefused) {
  EXPECT_EQ(ParseDevice("cpu")->Name(), "cpu");
  EXPECT_EQ(ParseDevice("cuda:0")->Name(), "cuda:0");
  EXPECT_EQ(ParseDevice("cuda:12")->index, 12);
  for (const char* text : {"", "CPU", "cuda", "cuda:", "cuda:-1", "cuda:01", "cuda:1 ", "cuda:999", "gpu:0"}) {
    const auto device = ParseDevice(text);
    ASSERT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(GetFieldViolation(device.status())->field, "device");
  }
}

TEST(DevicesTest, TheCpuIsListedLastAndAMissingCudaDeviceIsExplained) {
  const Devices devices = ListDevices();
  ASSERT_FALSE(devices.devices.empty());
  EXPECT_EQ(devices.devices.back().device.Name(), "cpu");
  EXPECT_GT(devices.devices.back().memory_bytes, 0);
  EXPECT_FALSE(devices.devices.back().model.empty());
  if (devices.devices.size() == 1) {
    EXPECT_EQ(devices.note.empty(), !BuiltWithCuda()) << devices.note;
    EXPECT_EQ(Engine::Create({.cuda = true, .index = 0}).status().code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(DevicesTest, WhyNoCudaDeviceIsThereNamesDriverAndVisibleDevices) {
  EXPECT_EQ(NoCudaDeviceNote(0, "CUDA driver version is insufficient for CUDA runtime version", nullptr),
            "built with CUDA, no device found: no NVIDIA driver is installed");
  EXPECT_EQ(NoCudaDeviceNote(12080, "CUDA driver version is insufficient for CUDA runtime version", nullptr),
            "built with CUDA, no device found: CUDA driver version is insufficient for CUDA runtime version");
  EXPECT_EQ(NoCudaDeviceNote(13000, "no CUDA-capable device is detected", ""),
            "built with CUDA, no device found: no CUDA-capable device is detected; CUDA_VISIBLE_DEVICES is \"\"");
  EXPECT_THAT(NoCudaDeviceNote(13000, "no CUDA-capable device is detected", "\x1b[2J9"),
              ::testing::AllOf(::testing::HasSubstr("CUDA_VISIBLE_DEVICES is \""),
                               ::testing::Not(::testing::HasSubstr("\x1b"))));
}

TEST(DevicesTest, TheRegistryListsTheVariantsInOrder) {
  std::vector<std::string> names;
  for (const VariantDescription& description : DescribeVariants()) names.push_back(description.name);
  EXPECT_THAT(names, ::testing::ElementsAre("portable_matmul_add", "portable_addmm", "materialized"));
}

// A file system of the test's own: tests run side by side.
class HostMemoryTest : public ::testing::Test {
 protected:
  HostMemoryTest() { Write("proc/meminfo", "MemTotal:       8192 kB\nMemFree: 1 kB\nMemAvailable:   4096 kB\n"); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  const testing::TempDir folder_;
  const std::filesystem::path root_ = folder_.path();
};

TEST_F(HostMemoryTest, WithoutGroupsTheMachineDecides) {
  EXPECT_EQ(ReadHostMemory(root_).total_bytes, 8 * kMiB);
  EXPECT_EQ(ReadHostMemory(root_).free_bytes, 4 * kMiB);
}

TEST_F(HostMemoryTest, TheTightestGroupOfVersion2Decides) {
  Write("proc/self/cgroup", "0::/a/b\n");
  Write("sys/fs/cgroup/a/memory.max", "3145728\n");
  Write("sys/fs/cgroup/a/memory.current", "2097152\n");
  Write("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 524288\n");
  Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("sys/fs/cgroup/a/b/memory.current", "1\n");
  EXPECT_EQ(ReadHostMemory(root_).total_bytes, 3 * kMiB);
  EXPECT_EQ(ReadHostMemory(root_).free_bytes, 3 * kMiB - (2 * kMiB - kMiB / 2));
}

TEST_F(HostMemoryTest, Version1AndAGroupThatIsFull) {
  Write("proc/self/cgroup", "12:cpu,cpuacct:/x\n4:hugetlb,memory:/docker/x\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
  Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "2097152\n");
  EXPECT_EQ(ReadHostMemory(root_).total_bytes, kMiB);
  EXPECT_EQ(ReadHostMemory(root_).free_bytes, 0);
}

TEST_F(HostMemoryTest, ASystemThatTellsNothingLimitsNothing) {
  EXPECT_EQ(ReadHostMemory(root_ / "nowhere").free_bytes, std::numeric_limits<std::int64_t>::max());
}

}  // namespace
}  // namespace keval::linear_logp
