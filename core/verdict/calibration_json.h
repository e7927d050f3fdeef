// The file of a calibration, and what it shows, as JSON. Format: docs/calibration.md.
#ifndef KEVAL_CORE_VERDICT_CALIBRATION_JSON_H_
#define KEVAL_CORE_VERDICT_CALIBRATION_JSON_H_

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/verdict/characteristics.h"

namespace keval::verdict {

struct CalibrationFile {
  nlohmann::json device;     // Its model; of a file from elsewhere whatever that says.
  nlohmann::json spec;       // What was measured: variant, shape, procedure. Null where not told.
  nlohmann::json collected;  // A list: from which round on with which device and server.
  nlohmann::json job;        // The job whose rounds are being taken up, as the collector notes it; null between jobs.
  std::vector<CalibrationRound> rounds;
};

// INVALID_ARGUMENT naming the place ("rounds[3].series.primary") for text that isn't such a document: a key missing or
// of the wrong type, a kind that is neither aa nor injected, an effect that its kind can't have, a number that isn't
// finite.
absl::StatusOr<CalibrationFile> ParseCalibration(absl::string_view text);

// One round a line.
std::string FormatCalibration(const CalibrationFile& file);

nlohmann::ordered_json CharacteristicsToJson(const Characteristics& characteristics);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_CALIBRATION_JSON_H_
