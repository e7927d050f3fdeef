#include "core/measure/environment.h"

#include <ATen/Version.h>
#include <gnu/libc-version.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text.h"
#include "core/linear_logp/engine.h"
#include "core/linear_logp/numerics.h"
#ifdef KEVAL_CUDA
#include <cuda_runtime_api.h>
#endif

namespace keval::measure {
namespace {

constexpr char kNotTold[] = "not told";

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line.empty() ? kNotTold : PrintableText(line, 256);
}

// The value of "key : value" in a file of such lines.
std::string FieldOf(const std::string& path, absl::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (parts.size() == 2 && absl::StripAsciiWhitespace(parts[0]) == key) {
      return PrintableText(absl::StripAsciiWhitespace(parts[1]), 256);
    }
  }
  return kNotTold;
}

int UsableCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 0;
}

void AddHost(std::map<std::string, std::string>* facts) {
  utsname system{};
  const bool named = uname(&system) == 0;
  (*facts)["cpu_model"] = FieldOf("/proc/cpuinfo", "model name");
  (*facts)["cpu_cores"] = absl::StrCat(std::thread::hardware_concurrency(), " online, ", UsableCores(), " usable");
  (*facts)["cpu_governor"] = FirstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  (*facts)["cpu_load_average"] = FirstLine("/proc/loadavg");
  (*facts)["host_memory"] = FieldOf("/proc/meminfo", "MemTotal");
  (*facts)["operating_system"] =
      named ? PrintableText(absl::StrCat(system.sysname, " ", system.release, " ", system.machine), 256) : kNotTold;
  (*facts)["c_library"] = absl::StrCat("glibc ", gnu_get_libc_version());
  (*facts)["allocator"] = "the C library's, at its defaults";
}

void AddBuild(std::map<std::string, std::string>* facts) {
  (*facts)["compiler"] = absl::StrCat("GCC-compatible ", __VERSION__);
  (*facts)["build_type"] = KEVAL_BUILD_TYPE;
  (*facts)["build_flags"] = PrintableText(KEVAL_BUILD_FLAGS, 512);
  (*facts)["built_with_cuda"] = linear_logp::BuiltWithCuda() ? "yes" : "no";
}

void AddTorch(const DeviceSession& session, std::map<std::string, std::string>* facts) {
  (*facts)["libtorch_version"] = linear_logp::TorchVersion();
  (*facts)["libtorch_cpu_capability"] = at::get_cpu_capability();
  (*facts)["worker_threads"] = absl::StrCat(session.threads());
  const linear_logp::Numerics numerics = linear_logp::ReadNumerics();
  const auto switch_text = [](bool on) { return on ? "on" : "off"; };
  (*facts)["tf32"] = switch_text(numerics.tf32_matmul);
  (*facts)["reduced_precision_float16"] = switch_text(numerics.reduced_precision_float16);
  (*facts)["reduced_precision_bfloat16"] = switch_text(numerics.reduced_precision_bfloat16);
  // Off is what ours are measured with, and the results are the same on every run all the same: numerics.h.
  (*facts)["deterministic_algorithms"] = switch_text(numerics.deterministic);
  const char* const workspace = std::getenv("CUBLAS_WORKSPACE_CONFIG");
  (*facts)["cublas_workspace"] = workspace == nullptr ? kNotTold : PrintableText(workspace, 64);
}

void AddProcedure(const DeviceSession& session, std::map<std::string, std::string>* facts) {
  const bool cuda = session.device().cuda;
  (*facts)["timer"] = cuda ? "device events on the arm's own stream" : "the host's steady clock";
  (*facts)["timed_region"] =
      cuda ? "forward, backward and the allocation of results, from a drained queue, launches included; inputs resident"
           : "forward, backward and the allocation of results; inputs resident";
  (*facts)["cache_overwrite"] = session.flush().Description();
  (*facts)["memory_counted"] =
      cuda ? "torch's CUDA allocator" : "torch's CPU allocator; scratch that oneDNN takes elsewhere is not counted";
}

void AddDevice(const DeviceSession& session, std::map<std::string, std::string>* facts) {
  (*facts)["device"] = session.device().Name();
  if (!session.device().cuda) {
    return;
  }
  (*facts)["gpu_uuid"] = session.uuid();
#ifdef KEVAL_CUDA
  const auto version = [](int number) { return absl::StrCat(number / 1000, ".", number % 1000 / 10); };
  int number = 0;
  (*facts)["cuda_runtime"] = cudaRuntimeGetVersion(&number) == cudaSuccess ? version(number) : kNotTold;
  (*facts)["cuda_driver"] = cudaDriverGetVersion(&number) == cudaSuccess ? version(number) : kNotTold;
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, session.device().index) == cudaSuccess) {
    (*facts)["gpu_model"] = PrintableText(properties.name, 256);
    (*facts)["gpu_compute_capability"] = absl::StrCat(properties.major, ".", properties.minor);
    (*facts)["gpu_memory"] = absl::StrCat(properties.totalGlobalMem, " bytes");
    (*facts)["gpu_multiprocessors"] = absl::StrCat(properties.multiProcessorCount);
    (*facts)["gpu_l2"] = absl::StrCat(properties.l2CacheSize, " bytes");
  }
#endif
  if (session.nvml() == nullptr) {
    (*facts)["nvml"] = absl::StrCat("unavailable: ", session.NvmlNote());
    return;
  }
  (*facts)["nvml"] = "loaded; device matched by UUID";
  for (auto& [name, text] : session.nvml()->Describe()) {
    (*facts)[name] = text;
  }
  (*facts)["gpu_processes"] = ProcessesText(session.Read());
}

}  // namespace

std::map<std::string, std::string> DescribeEnvironment(const DeviceSession& session) {
  std::map<std::string, std::string> facts;
  AddHost(&facts);
  AddBuild(&facts);
  AddTorch(session, &facts);
  AddProcedure(session, &facts);
  AddDevice(session, &facts);
  return facts;
}

}  // namespace keval::measure
