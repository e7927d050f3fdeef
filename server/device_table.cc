#include "server/device_table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/field_error.h"
#include "base/number.h"
#include "base/text.h"

namespace keval::server {
namespace {

bool IsDeviceName(absl::string_view name) {
  if (name == "cpu") return true;
  return absl::ConsumePrefix(&name, "cuda:") && ParseInt64(name).value_or(-1) >= 0;
}

absl::Status Unserved(absl::string_view name, absl::string_view why, absl::string_view limit = "") {
  return WithField(absl::FailedPreconditionError(absl::StrCat("device: ", name, " ", why)),
                   {"device", std::string(name), std::string(limit)});
}

}  // namespace

absl::StatusOr<const ServedDevice*> DeviceTable::Any(absl::string_view name) const {
  if (!name.empty() && !IsDeviceName(name)) return InvalidField("device", name, "\"cpu\" or \"cuda:N\"");
  for (const ServedDevice& device : devices_) {
    if (name.empty() || name == device.name) return &device;
  }
  const std::string here = absl::StrJoin(
      devices_, ", ", [](std::string* out, const ServedDevice& device) { absl::StrAppend(out, device.name); });
  return Unserved(name, absl::StrCat("is not a device of this server, which has ", here),
                  absl::StrCat("one of ", here));
}

absl::StatusOr<const ServedDevice*> DeviceTable::ForGradients(absl::string_view name) const {
  if (name.empty()) {
    for (const ServedDevice& device : devices_) {
      if (device.executor != nullptr) return &device;
    }
    return Unserved("any", "is needed, but this server's devices run benchmarks only");
  }
  absl::StatusOr<const ServedDevice*> device = Any(name);
  if (device.ok() && (*device)->executor == nullptr) return Unserved(name, "does not run gradients on this server");
  return device;
}

}  // namespace keval::server
