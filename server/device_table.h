// Every device of the server, by the names that requests use, and which of them run gradients.
#ifndef KEVAL_SERVER_DEVICE_TABLE_H_
#define KEVAL_SERVER_DEVICE_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/device_lease.h"
#include "server/executor.h"

namespace keval::server {

struct ServedDevice {
  std::string name;  // "cpu", "cuda:0".
  bool on_cpu = true;
  std::int64_t memory_bytes = 0;  // 0: unknown.
  DeviceLease* lease = nullptr;
  Executor* executor = nullptr;  // Null where the device runs no gradients.
};

// Fixed at start; reads need no lock. Owns neither leases nor executors.
class DeviceTable {
 public:
  explicit DeviceTable(std::vector<ServedDevice> devices) : devices_(std::move(devices)) {}

  // `name` empty: the first that runs gradients. INVALID_ARGUMENT (field "device"): not a device's name;
  // FAILED_PRECONDITION (field "device"): no such device here, or not for gradients.
  absl::StatusOr<const ServedDevice*> ForGradients(absl::string_view name) const;
  // The same for any device of this server; `name` empty: the first.
  absl::StatusOr<const ServedDevice*> Any(absl::string_view name) const;

  const std::vector<ServedDevice>& devices() const { return devices_; }

 private:
  const std::vector<ServedDevice> devices_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_DEVICE_TABLE_H_
