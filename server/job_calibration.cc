#include "server/job_calibration.h"

#include "absl/strings/str_cat.h"
#include "core/verdict/margin.h"

namespace keval::server {

std::string DeviceKey(const v1::DeviceInfo& device) {
  return absl::StrCat(device.name(), "|", device.model(), "|", device.uuid());
}

std::vector<CalibrationPoint> CalibrationPoints(const v1::DeviceInfo& device, const verdict::Look& look) {
  std::vector<CalibrationPoint> points;
  for (const verdict::SeriesLook& series : look.series) {
    if (series.role == verdict::Role::kControl) continue;
    for (const double mean : verdict::CalibrationMeans(series.D)) points.push_back({DeviceKey(device), mean});
  }
  return points;
}

}  // namespace keval::server
