#include "core/measure/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/number.h"
#include "base/text.h"

namespace keval::measure {
namespace {

// The part of NVML's binary interface that is used, by its documentation (stable since CUDA 11); its unsigned long long
// is 64 bits on Linux.
using NvmlReturn = int;  // 0: success.
using NvmlDevice = void*;
constexpr NvmlReturn kSuccess = 0;
constexpr NvmlReturn kInsufficientSize = 7;
constexpr unsigned kClockSm = 1;
constexpr unsigned kClockMemory = 2;
constexpr unsigned kTemperatureGpu = 0;
constexpr unsigned kTextBytes = 96;

struct NvmlProcess {
  unsigned pid;
  std::uint64_t used_gpu_memory;
  unsigned gpu_instance_id;
  unsigned compute_instance_id;
};

struct NvmlViolation {
  std::uint64_t reference_time;
  std::uint64_t violation_time;
};
constexpr unsigned kPolicyThermal = 1;

// nvmlClocksEventReason*.
struct Reason {
  std::uint64_t bit;
  absl::string_view name;
  bool throttles;
};
constexpr std::array<Reason, 9> kReasons = {{
    {0x001, "idle", false},
    {0x002, "application clocks", false},
    {0x004, "power cap (software)", false},
    {0x008, "hardware slowdown", true},
    {0x010, "sync boost", false},
    {0x020, "thermal (software)", true},
    {0x040, "thermal (hardware)", true},
    {0x080, "power brake (hardware)", true},
    {0x100, "display clock", false},
}};

}  // namespace

bool IsThrottled(std::uint64_t reasons) {
  for (const Reason& reason : kReasons) {
    if (reason.throttles && (reasons & reason.bit) != 0) {
      return true;
    }
  }
  return false;
}

std::uint64_t ReasonsBetween(const DeviceReading& before, const DeviceReading& after, std::uint64_t seen) {
  constexpr std::uint64_t kThermal = 0x020;
  const bool grew = before.thermal_violation.has_value() && after.thermal_violation.has_value() &&
                    *after.thermal_violation > *before.thermal_violation;
  return seen | (grew ? kThermal : 0);
}

std::optional<int> OtherProcesses(const DeviceReading& reading, const std::vector<int>& own) {
  if (!reading.processes_known) {
    return std::nullopt;
  }
  const std::set<unsigned> all(reading.process_ids.begin(), reading.process_ids.end());
  const std::set<int> ours(own.begin(), own.end());
  const auto found = std::count_if(ours.begin(), ours.end(),
                                   [&all](int id) { return id > 0 && all.contains(static_cast<unsigned>(id)); });
  return found == 0 ? std::nullopt : std::optional(static_cast<int>(all.size()) - static_cast<int>(found));
}

std::string ProcessesText(const DeviceReading& reading) {
  if (!reading.processes_known) {
    return "not told";
  }
  std::vector<std::string> names;
  for (const unsigned id : reading.process_ids) {
    std::ifstream file(absl::StrCat("/proc/", id, "/comm"));
    std::string name;
    std::getline(file, name);
    names.push_back(absl::StrCat(id, " ", name.empty() ? "(name not told)" : PrintableText(name, 64)));
  }
  return absl::StrCat(names.size(), " with a context", names.empty() ? "" : ": ", absl::StrJoin(names, ", "));
}

std::string ThrottleReasonsText(std::uint64_t reasons) {
  std::vector<std::string> names;
  for (const Reason& reason : kReasons) {
    if ((reasons & reason.bit) != 0) {
      names.emplace_back(reason.name);
      reasons &= ~reason.bit;
    }
  }
  if (reasons != 0) {
    names.push_back(absl::StrCat("bits 0x", absl::Hex(reasons)));
  }
  return names.empty() ? "none" : absl::StrJoin(names, ", ");
}

struct Nvml::State {
  struct Closer {
    void operator()(void* handle) const { dlclose(handle); }
  };
  std::unique_ptr<void, Closer> library;
  bool initialised = false;
  NvmlDevice device = nullptr;

  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*shutdown)() = nullptr;
  const char* (*error_string)(NvmlReturn) = nullptr;
  NvmlReturn (*handle_by_uuid)(const char*, NvmlDevice*) = nullptr;
  NvmlReturn (*name)(NvmlDevice, char*, unsigned) = nullptr;
  NvmlReturn (*driver_version)(char*, unsigned) = nullptr;
  NvmlReturn (*clock)(NvmlDevice, unsigned, unsigned*) = nullptr;
  NvmlReturn (*max_clock)(NvmlDevice, unsigned, unsigned*) = nullptr;
  NvmlReturn (*power)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*power_limit)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*temperature)(NvmlDevice, unsigned, unsigned*) = nullptr;
  NvmlReturn (*throttle_reasons)(NvmlDevice, std::uint64_t*) = nullptr;
  NvmlReturn (*violation)(NvmlDevice, unsigned, NvmlViolation*) = nullptr;
  NvmlReturn (*processes)(NvmlDevice, unsigned*, NvmlProcess*) = nullptr;
  NvmlReturn (*persistence_mode)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*compute_mode)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*mig_mode)(NvmlDevice, unsigned*, unsigned*) = nullptr;
  NvmlReturn (*lock_clocks)(NvmlDevice, unsigned, unsigned) = nullptr;
  NvmlReturn (*reset_clocks)(NvmlDevice) = nullptr;

  ~State() {
    if (initialised) {
      shutdown();
    }
  }

  // False where the library has none of these names; `function` stays null then.
  template <typename Function>
  bool Find(Function* function, absl::string_view symbol) const {
    // POSIX lets an object pointer from dlsym be a function pointer.
    *function = reinterpret_cast<Function>(dlsym(library.get(), std::string(symbol).c_str()));
    return *function != nullptr;
  }

  std::string Explain(NvmlReturn code) const {
    const char* const text = error_string == nullptr ? nullptr : error_string(code);
    return text == nullptr ? absl::StrCat("error ", code) : PrintableText(text, 200);
  }

  // A reading that takes one unsigned, scaled; NaN where the device or the library does not tell.
  template <typename Function, typename... Args>
  double Number(Function function, double scale, Args... args) const {
    unsigned value = 0;
    if (function == nullptr || function(device, args..., &value) != kSuccess) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    return static_cast<double>(value) * scale;
  }
};

Nvml::Nvml(std::unique_ptr<State> state) : state_(std::move(state)) {}
Nvml::~Nvml() = default;

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(absl::string_view uuid) {
  const char* const override_path = std::getenv("KEVAL_NVML_LIBRARY");
  const std::string path = override_path != nullptr ? override_path : "libnvidia-ml.so.1";
  auto state = std::make_unique<State>();
  state->library.reset(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (state->library == nullptr) {
    return absl::UnavailableError(absl::StrCat("NVML can't be loaded from ", PrintableText(path)));
  }
  State& nvml = *state;
  if (!nvml.Find(&nvml.init, "nvmlInit_v2") || !nvml.Find(&nvml.shutdown, "nvmlShutdown") ||
      !nvml.Find(&nvml.handle_by_uuid, "nvmlDeviceGetHandleByUUID")) {
    return absl::UnavailableError(absl::StrCat(PrintableText(path), " lacks NVML's basic functions"));
  }
  nvml.Find(&nvml.error_string, "nvmlErrorString");
  nvml.Find(&nvml.name, "nvmlDeviceGetName");
  nvml.Find(&nvml.driver_version, "nvmlSystemGetDriverVersion");
  nvml.Find(&nvml.clock, "nvmlDeviceGetClockInfo");
  nvml.Find(&nvml.max_clock, "nvmlDeviceGetMaxClockInfo");
  nvml.Find(&nvml.power, "nvmlDeviceGetPowerUsage");
  nvml.Find(&nvml.power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  nvml.Find(&nvml.temperature, "nvmlDeviceGetTemperature");
  if (!nvml.Find(&nvml.throttle_reasons, "nvmlDeviceGetCurrentClocksEventReasons")) {
    nvml.Find(&nvml.throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");  // Before driver 535.
  }
  nvml.Find(&nvml.violation, "nvmlDeviceGetViolationStatus");
  nvml.Find(&nvml.processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  nvml.Find(&nvml.persistence_mode, "nvmlDeviceGetPersistenceMode");
  nvml.Find(&nvml.compute_mode, "nvmlDeviceGetComputeMode");
  nvml.Find(&nvml.mig_mode, "nvmlDeviceGetMigMode");
  nvml.Find(&nvml.lock_clocks, "nvmlDeviceSetGpuLockedClocks");
  nvml.Find(&nvml.reset_clocks, "nvmlDeviceResetGpuLockedClocks");
  if (const NvmlReturn code = nvml.init(); code != kSuccess) {
    return absl::UnavailableError(absl::StrCat("NVML does not start: ", nvml.Explain(code)));
  }
  nvml.initialised = true;
  if (const NvmlReturn code = nvml.handle_by_uuid(std::string(uuid).c_str(), &nvml.device); code != kSuccess) {
    return absl::NotFoundError(
        absl::StrCat("NVML knows no device ", PrintableText(uuid, 100), ": ", nvml.Explain(code)));
  }
  return std::unique_ptr<Nvml>(new Nvml(std::move(state)));
}

DeviceReading Nvml::Read() const {
  const State& nvml = *state_;
  DeviceReading reading;
  reading.sm_clock_mhz = nvml.Number(nvml.clock, 1, kClockSm);
  reading.memory_clock_mhz = nvml.Number(nvml.clock, 1, kClockMemory);
  reading.power_watts = nvml.Number(nvml.power, 1e-3);
  reading.temperature_celsius = nvml.Number(nvml.temperature, 1, kTemperatureGpu);
  reading.throttle_reasons = ThrottleReasons();
  NvmlViolation violation{};
  if (nvml.violation != nullptr && nvml.violation(nvml.device, kPolicyThermal, &violation) == kSuccess) {
    reading.thermal_violation = violation.violation_time;
  }
  if (nvml.processes != nullptr) {
    constexpr unsigned kMaxProcesses = 1024;
    std::vector<NvmlProcess> processes(32);
    auto count = static_cast<unsigned>(processes.size());
    NvmlReturn code = nvml.processes(nvml.device, &count, processes.data());
    if (code == kInsufficientSize) {
      processes.resize(kMaxProcesses);
      count = kMaxProcesses;
      code = nvml.processes(nvml.device, &count, processes.data());
    }
    if (code == kSuccess && count <= processes.size()) {
      reading.processes_known = true;
      for (unsigned i = 0; i < count; ++i) {
        reading.process_ids.push_back(processes[i].pid);
      }
    }
  }
  return reading;
}

std::uint64_t Nvml::ThrottleReasons() const {
  std::uint64_t reasons = 0;
  const bool told =
      state_->throttle_reasons != nullptr && state_->throttle_reasons(state_->device, &reasons) == kSuccess;
  return told ? reasons : 0;
}

bool Nvml::IsLost() const {
  constexpr NvmlReturn kGpuIsLost = 15;
  constexpr NvmlReturn kResetRequired = 16;
  unsigned celsius = 0;
  const NvmlReturn code =
      state_->temperature == nullptr ? kSuccess : state_->temperature(state_->device, kTemperatureGpu, &celsius);
  return code == kGpuIsLost || code == kResetRequired;
}

bool Nvml::IsSplit() const {
  constexpr unsigned kEnabled = 1;
  unsigned current = 0;
  unsigned pending = 0;
  return state_->mig_mode != nullptr && state_->mig_mode(state_->device, &current, &pending) == kSuccess &&
         current == kEnabled;
}

absl::Status Nvml::LockSmClock(unsigned mhz) const {
  if (state_->lock_clocks == nullptr) {
    return absl::UnavailableError("this driver locks no clocks");
  }
  const NvmlReturn code = state_->lock_clocks(state_->device, mhz, mhz);
  return code == kSuccess ? absl::OkStatus() : absl::UnavailableError(state_->Explain(code));
}

absl::Status Nvml::UnlockSmClock() const {
  if (state_->reset_clocks == nullptr) {
    return absl::UnavailableError("this driver locks no clocks");
  }
  const NvmlReturn code = state_->reset_clocks(state_->device);
  return code == kSuccess ? absl::OkStatus() : absl::UnavailableError(state_->Explain(code));
}

std::map<std::string, std::string> Nvml::Describe() const {
  const State& nvml = *state_;
  std::map<std::string, std::string> facts;
  std::array<char, kTextBytes> text{};
  if (nvml.name != nullptr && nvml.name(nvml.device, text.data(), kTextBytes) == kSuccess) {
    facts["gpu_model"] = PrintableText(text.data());
  }
  if (nvml.driver_version != nullptr && nvml.driver_version(text.data(), kTextBytes) == kSuccess) {
    facts["driver_version"] = PrintableText(text.data());
  }
  const auto add = [&facts](const std::string& name, double value, absl::string_view unit) {
    facts[name] = value == value ? absl::StrCat(FixedText(value, 0), unit) : "not told";
  };
  add("gpu_max_sm_clock", nvml.Number(nvml.max_clock, 1, kClockSm), " MHz");
  add("gpu_max_memory_clock", nvml.Number(nvml.max_clock, 1, kClockMemory), " MHz");
  add("gpu_power_limit", nvml.Number(nvml.power_limit, 1e-3), " W");
  add("gpu_persistence_mode", nvml.Number(nvml.persistence_mode, 1), "");
  add("gpu_compute_mode", nvml.Number(nvml.compute_mode, 1), "");
  const DeviceReading now = Read();
  add("gpu_sm_clock", now.sm_clock_mhz, " MHz");
  add("gpu_memory_clock", now.memory_clock_mhz, " MHz");
  add("gpu_power", now.power_watts, " W");
  add("gpu_temperature", now.temperature_celsius, " C");
  facts["gpu_throttle_reasons"] = ThrottleReasonsText(now.throttle_reasons);
  return facts;
}

}  // namespace keval::measure
