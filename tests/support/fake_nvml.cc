// A stand-in for libnvidia-ml.so.1 with three devices, for tests without a GPU. The second one is hot and busy; it
// shares the node with process 4242. The third is split. Locks are written down as lines of the file
// $KEVAL_FAKE_NVML_STATE, so that they outlive the process as a real device's do; with $KEVAL_FAKE_NVML_DENY nobody may
// lock. $KEVAL_FAKE_NVML_VIOLATION is how long each was slowed for heat; without it they keep no account.
// While there is a file $KEVAL_FAKE_NVML_GUEST the first and the third are shared too.
// $KEVAL_FAKE_NVML_REASONS are each one's throttle reasons; $KEVAL_FAKE_NVML_LOST is what a question after the
// temperature of one that is lost is answered with.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace {

struct Device {
  const char* uuid;
  const char* name;
  unsigned sm_clock;
  unsigned milliwatts;
  unsigned temperature;
  std::uint64_t throttle_reasons;
  bool busy;
  bool split;
};
Device devices[] = {
    {"GPU-00000000-0000-0000-0000-000000000000", "Fake first", 1980, 120000, 41, 0x1, false, false},
    {"GPU-12345678-1234-1234-1234-123456789abc", "Fake\x1bsecond", 1410, 699500, 87, 0x24, true, false},
    {"GPU-99999999-9999-9999-9999-999999999999", "Fake third", 1980, 120000, 41, 0x1, false, true},
};
struct Process {
  unsigned pid;
  std::uint64_t used_gpu_memory;
  unsigned gpu_instance_id;
  unsigned compute_instance_id;
};
struct Violation {
  std::uint64_t reference_time;
  std::uint64_t violation_time;
};
constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;

constexpr int kNoPermission = 4;
int Note(const char* what, const Device& device, unsigned mhz) {
  if (std::getenv("KEVAL_FAKE_NVML_DENY") != nullptr) return kNoPermission;
  if (const char* const path = std::getenv("KEVAL_FAKE_NVML_STATE"); path != nullptr) {
    std::ofstream(path, std::ios::app) << what << ' ' << device.uuid << ' ' << mhz << '\n';
  }
  return kSuccess;
}

int Copy(const char* from, char* to, unsigned size) {
  std::strncpy(to, from, size);
  return kSuccess;
}

}  // namespace

extern "C" {
int nvmlInit_v2() { return kSuccess; }
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int code) {
  return code == kNotFound ? "Not Found" : code == kNoPermission ? "Insufficient Permissions" : "some error";
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  for (Device& candidate : devices) {
    if (std::strcmp(candidate.uuid, uuid) == 0) {
      *device = &candidate;
      return kSuccess;
    }
  }
  return kNotFound;
}
int nvmlDeviceGetName(void* device, char* name, unsigned size) {
  return Copy(static_cast<Device*>(device)->name, name, size);
}
int nvmlSystemGetDriverVersion(char* version, unsigned size) { return Copy("580.00", version, size); }
int nvmlDeviceGetClockInfo(void* device, unsigned type, unsigned* mhz) {
  if (type != 1) {
    return kNotSupported;  // The memory clock: not told.
  }
  *mhz = static_cast<Device*>(device)->sm_clock;
  return kSuccess;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  *current = *pending = static_cast<Device*>(device)->split ? 1 : 0;
  return kSuccess;
}
int nvmlDeviceSetGpuLockedClocks(void* device, unsigned least, unsigned most) {
  return least == most ? Note("lock", *static_cast<Device*>(device), most) : kNotSupported;
}
int nvmlDeviceResetGpuLockedClocks(void* device) { return Note("unlock", *static_cast<Device*>(device), 0); }
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  *milliwatts = static_cast<Device*>(device)->milliwatts;
  return kSuccess;
}
int nvmlDeviceGetTemperature(void* device, unsigned, unsigned* celsius) {
  if (const char* const text = std::getenv("KEVAL_FAKE_NVML_LOST"); text != nullptr) return std::atoi(text);
  *celsius = static_cast<Device*>(device)->temperature;
  return kSuccess;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, std::uint64_t* reasons) {
  const char* const text = std::getenv("KEVAL_FAKE_NVML_REASONS");
  *reasons = text == nullptr ? static_cast<Device*>(device)->throttle_reasons : std::strtoull(text, nullptr, 10);
  return kSuccess;
}
int nvmlDeviceGetViolationStatus(void*, unsigned policy, Violation* violation) {
  const char* const text = std::getenv("KEVAL_FAKE_NVML_VIOLATION");
  if (text == nullptr || policy != 1) return kNotSupported;  // Heat alone.
  violation->violation_time = std::strtoull(text, nullptr, 10);
  return kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  const bool busy = static_cast<Device*>(device)->busy;
  const char* const guest = std::getenv("KEVAL_FAKE_NVML_GUEST");
  const bool visited = guest != nullptr && access(guest, F_OK) == 0;
  const unsigned wanted = busy ? 40 : visited ? 2 : 1;  // 40: more than a first guess holds.
  if (*count < wanted) {
    *count = wanted;
    return kInsufficientSize;
  }
  *count = wanted;
  for (unsigned i = 0; i < wanted; ++i) {
    processes[i] = {i == 0 ? static_cast<unsigned>(getpid()) : 4241 + i, 0, 0, 0};
  }
  return kSuccess;
}
}
