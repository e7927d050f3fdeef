// Devices by name, and what this build can use here.
#include <torch/version.h>

#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/number.h"
#include "core/linear_logp/cuda_device.h"
#include "core/linear_logp/engine.h"
#include "core/linear_logp/host_memory.h"

namespace keval::linear_logp {
namespace {

constexpr absl::string_view kCuda = "cuda:";
constexpr std::int64_t kMaxDeviceIndex = 127;  // c10::DeviceIndex has 8 bits.

std::string CpuModel() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && absl::StartsWith(line, "model name")) {
      return std::string(absl::StripAsciiWhitespace(absl::string_view(line).substr(colon + 1)));
    }
  }
  return "CPU";
}

DeviceDescription DescribeCpu() {
  const HostMemory memory = ReadHostMemory();
  return {.device = {}, .model = CpuModel(), .memory_bytes = memory.total_bytes, .free_bytes = memory.free_bytes};
}

}  // namespace

std::string Device::Name() const { return cuda ? absl::StrCat(kCuda, index) : "cpu"; }

absl::StatusOr<Device> ParseDevice(absl::string_view text) {
  if (text == "cpu") return Device{};
  if (absl::StartsWith(text, kCuda)) {
    const absl::string_view digits = text.substr(kCuda.size());
    const auto index = ParseInt64(digits);
    if (index && *index >= 0 && *index <= kMaxDeviceIndex && absl::StrCat(*index) == digits) {
      return Device{.cuda = true, .index = static_cast<int>(*index)};
    }
  }
  return InvalidField("device", text, "cpu, or cuda:N such as cuda:0");
}

Devices ListDevices() {
  Devices result;
  const int count = CudaDeviceCount(&result.note);
  for (int index = 0; index < count; ++index) {
    absl::StatusOr<DeviceDescription> description = DescribeCudaDevice(index);
    if (description.ok()) {
      result.devices.push_back(*std::move(description));
    } else {
      absl::StrAppend(&result.note, result.note.empty() ? "" : "; ", description.status().message());
    }
  }
  result.devices.push_back(DescribeCpu());
  return result;
}

std::string TorchVersion() { return TORCH_VERSION; }

bool BuiltWithCuda() {
#if KEVAL_CUDA
  return true;
#else
  return false;
#endif
}

}  // namespace keval::linear_logp
