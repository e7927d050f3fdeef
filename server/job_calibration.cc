#include "server/job_calibration.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/number.h"
#include "base/text.h"
#include "core/verdict/margin.h"
#include "server/job_spec.h"

namespace keval::server {
namespace {

constexpr int kMaxCalibrations = 64;
constexpr int kMaxMeans = 20000;  // Of more rounds than a calibration's file can have.
constexpr std::size_t kMaxNameBytes = 256;
constexpr std::size_t kShaDigits = 64;
constexpr double kMaxMean = 1;  // In ln units: a copy that is almost three times as fast as itself.

std::string DeviceText(absl::string_view model, absl::string_view uuid) {
  return absl::StrCat(PrintableText(model, kMaxNameBytes), uuid.empty() ? "" : " ", PrintableText(uuid, kMaxNameBytes));
}

int RoundsOf(std::size_t means) { return static_cast<int>(means) * verdict::kCalibrationRounds; }

// Primaries and guards, with the role that a margin may be named by.
std::map<std::string, std::string> DecidingSeries(const v1::BenchmarkSpec& spec) {
  std::map<std::string, std::string> roles;
  for (const auto& shape : spec.primaries()) roles.emplace(SeriesName(shape), "primary");
  for (const auto& shape : spec.guards()) roles.emplace(SeriesName(shape), "guard");
  return roles;
}

// Why it gives no margin; empty: it does.
std::string WhyUnused(const v1::MarginCalibration& calibration, const v1::BenchmarkSpec& spec,
                      const v1::DeviceInfo& device) {
  if (calibration.device() != device.model() || calibration.uuid() != device.uuid()) {
    return absl::StrCat("it was collected on ", DeviceText(calibration.device(), calibration.uuid()),
                        ", this job runs on ", DeviceText(device.model(), device.uuid()));
  }
  const auto roles = DecidingSeries(spec);
  const auto role = roles.find(calibration.series());
  if (role == roles.end()) return "no primary or guard of this job is of that shape";
  if (spec.margins().contains(role->first) || spec.margins().contains(role->second)) {
    return "the spec's own margin goes first";
  }
  return "";
}

absl::Status CheckMeans(const std::string& path, const v1::MarginCalibration& calibration) {
  const std::string field = absl::StrCat(path, ".means");
  if (calibration.means().empty() || calibration.means_size() > kMaxMeans) {
    return InvalidField(field, absl::StrCat(calibration.means_size(), " means"),
                        absl::StrCat("1 to ", kMaxMeans, " means"));
  }
  for (const double mean : calibration.means()) {
    if (!(std::abs(mean) <= kMaxMean)) return InvalidField(field, DoubleText(mean), "within ±1, in ln units");
  }
  return absl::OkStatus();
}

}  // namespace

std::string CalibrationKey(const v1::DeviceInfo& device, absl::string_view series) {
  return absl::StrCat(device.name(), "|", device.model(), "|", device.uuid(), "|", series);
}

std::vector<CalibrationPoint> CalibrationPoints(const v1::DeviceInfo& device, const verdict::Look& look) {
  std::vector<CalibrationPoint> points;
  for (const verdict::SeriesLook& series : look.series) {
    if (series.role == verdict::Role::kControl) continue;
    for (const double mean : verdict::CalibrationMeans(series.D)) {
      points.push_back({CalibrationKey(device, series.series), mean});
    }
  }
  return points;
}

absl::StatusOr<NoiseRecord> FindNoise(const v1::BenchmarkSpec& spec, const v1::DeviceInfo& device, JobStore* store) {
  NoiseRecord record;
  for (const v1::MarginCalibration& calibration : spec.margin_calibrations()) {
    if (const std::string why = WhyUnused(calibration, spec, device); !why.empty()) {
      record.unused.push_back(absl::StrCat("The calibration ", calibration.sha256(), " of ",
                                           PrintableText(calibration.series(), kMaxNameBytes),
                                           " gives no margin: ", why, "."));
      continue;
    }
    KnownNoise& noise = record.by_series[calibration.series()];
    noise.means.assign(calibration.means().begin(), calibration.means().end());
    noise.source.set_origin("spec");
    noise.source.set_sha256(calibration.sha256());
  }
  for (const auto& [series, role] : DecidingSeries(spec)) {
    KnownNoise noise;
    if (const auto found = record.by_series.find(series); found != record.by_series.end()) {
      noise = std::move(found->second);
    } else {
      auto means = store->Calibration(CalibrationKey(device, series));
      if (!means.ok()) return means.status();
      if (means->empty()) continue;
      noise.means = *std::move(means);
      noise.source.set_origin("server");
    }
    noise.source.set_rounds(RoundsOf(noise.means.size()));
    noise.source.set_device(device.model());
    noise.source.set_uuid(device.uuid());
    record.by_series[series] = std::move(noise);
  }
  return record;
}

absl::Status CheckMarginCalibrations(const v1::BenchmarkSpec& spec) {
  if (spec.margin_calibrations_size() > kMaxCalibrations) {
    return InvalidField("margin_calibrations", absl::StrCat(spec.margin_calibrations_size(), " calibrations"),
                        absl::StrCat("at most ", kMaxCalibrations));
  }
  std::set<std::tuple<std::string, std::string, std::string>> seen;
  for (int i = 0; i < spec.margin_calibrations_size(); ++i) {
    const v1::MarginCalibration& one = spec.margin_calibrations(i);
    const std::string path = absl::StrCat("margin_calibrations[", i, "]");
    if (one.sha256().size() != kShaDigits ||
        !std::all_of(one.sha256().begin(), one.sha256().end(), absl::ascii_isxdigit)) {
      return InvalidField(absl::StrCat(path, ".sha256"), PrintableText(one.sha256(), kShaDigits),
                          "64 hexadecimal digits");
    }
    const std::pair<const char*, const std::string*> texts[] = {
        {"device", &one.device()}, {"uuid", &one.uuid()}, {"series", &one.series()}};
    for (const auto& [name, text] : texts) {
      if (text->size() <= kMaxNameBytes && IsValidUtf8(*text)) continue;
      return InvalidField(absl::StrCat(path, ".", name), PrintableText(*text, kMaxNameBytes),
                          absl::StrCat("at most ", kMaxNameBytes, " bytes of UTF-8"));
    }
    if (auto status = CheckMeans(path, one); !status.ok()) return status;
    if (!seen.emplace(one.device(), one.uuid(), one.series()).second) {
      return InvalidField(path, PrintableText(one.series(), kMaxNameBytes), "one for each device and series");
    }
  }
  return absl::OkStatus();
}

}  // namespace keval::server
