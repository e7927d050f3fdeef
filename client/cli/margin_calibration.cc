#include "client/cli/margin_calibration.h"

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/file.h"
#include "base/sha256.h"
#include "client/spec/spec.h"
#include "core/verdict/calibration_json.h"
#include "core/verdict/calibration_runs.h"

namespace keval::cli {
namespace {

constexpr std::int64_t kMaxFileBytes = std::int64_t{256} << 20;

// The device that session `session` of the file collected on; sessions count from 1, 0 stands before the first.
std::string UuidOf(const verdict::CalibrationFile& file, int session) {
  if (session == 0) return "";
  const nlohmann::json& entry = file.collected.at(static_cast<std::size_t>(session) - 1);
  const auto uuid = entry.find("uuid");
  return uuid != entry.end() && uuid->is_string() ? uuid->get<std::string>() : "";
}

absl::Status AddCalibration(const std::string& path, v1::BenchmarkSpec* spec) {
  const auto text = ReadWholeFile(path, kMaxFileBytes);
  if (!text.ok()) return text.status();
  const auto file = verdict::ParseCalibration(*text);
  if (!file.ok()) return file.status();
  if (!file->device.is_string()) return InvalidField("calibration.device", "something else", "a device's model");
  if (!file->spec.is_object() || !file->spec.contains("series") || !file->spec.at("series").is_string()) {
    return InvalidField("calibration.spec.series", "missing", "the name of the series that was collected");
  }
  std::map<std::string, std::vector<verdict::CalibrationRound>> by_uuid;
  for (const verdict::CalibrationRound& round : file->rounds) {
    by_uuid[UuidOf(*file, round.session)].push_back(round);
  }
  bool any = false;
  for (const auto& [uuid, rounds] : by_uuid) {
    const std::vector<double> means = verdict::AaMeans(rounds);
    if (means.empty()) continue;
    any = true;
    v1::MarginCalibration* const calibration = spec->add_margin_calibrations();
    calibration->set_sha256(Sha256Hex(*text));
    calibration->set_device(file->device.get<std::string>());
    calibration->set_uuid(uuid);
    calibration->set_series(file->spec.at("series").get<std::string>());
    calibration->mutable_means()->Add(means.begin(), means.end());
  }
  if (any) return absl::OkStatus();
  return InvalidField("calibration.rounds", absl::StrCat(file->rounds.size(), " rounds"),
                      "six or more A/A rounds that follow each other");
}

}  // namespace

CLI::Option* AddCalibrations(CLI::App* command, std::vector<std::string>* files) {
  return command
      ->add_option("--calibration", *files,
                   "file of keval calibrate: margins of the device and shape that it was collected on, where "
                   "the spec names none; may be repeated")
      ->type_name("FILE");
}

absl::StatusOr<v1::BenchmarkSpec> ReadSpecWithCalibrations(const std::string& path,
                                                           const std::vector<std::string>& files) {
  auto spec = spec::ReadSpec(path);
  if (!spec.ok()) return spec.status();
  for (const std::string& file : files) {
    if (auto status = AddCalibration(file, &*spec); !status.ok()) return status;
  }
  return spec;
}

}  // namespace keval::cli
