// A calibration's characteristics for a person.
#ifndef KEVAL_CLIENT_CLI_CALIBRATION_TEXT_H_
#define KEVAL_CLIENT_CLI_CALIBRATION_TEXT_H_

#include <string>

#include "core/verdict/calibration_json.h"
#include "core/verdict/characteristics.h"

namespace keval::cli {

// Noise by effect, then every target with its rates and intervals, then what to know of them. Ends with a newline;
// printable.
std::string CharacteristicsText(const verdict::CalibrationFile& file, const verdict::Characteristics& shown);

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_CALIBRATION_TEXT_H_
