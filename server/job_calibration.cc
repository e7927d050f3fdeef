#include "server/job_calibration.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace keval::server {

std::string DeviceKey(const v1::DeviceInfo& device) {
  return absl::StrCat(device.name(), "|", device.model(), "|", device.uuid());
}

std::vector<CalibrationPoint> CalibrationPoints(const v1::DeviceInfo& device, const verdict::Look& look) {
  std::vector<CalibrationPoint> points;
  for (const verdict::SeriesLook& series : look.series) {
    if (series.role != verdict::Role::kControl && std::isfinite(series.L)) {
      points.push_back({DeviceKey(device), series.L});
    }
  }
  return points;
}

}  // namespace keval::server
