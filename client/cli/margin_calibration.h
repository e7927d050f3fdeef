// Margins that come from a calibration's file: what `run`, `submit` and `history` share.
#ifndef KEVAL_CLIENT_CLI_MARGIN_CALIBRATION_H_
#define KEVAL_CLIENT_CLI_MARGIN_CALIBRATION_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "keval/v1/benchmark.pb.h"

namespace keval::cli {

CLI::Option* AddCalibrations(CLI::App* command, std::vector<std::string>* files);

// The spec in `path`, and in it what the A/A rounds of each calibration's file show: an entry for each device that the
// file's rounds were collected on. The errors of both kinds of file; INVALID_ARGUMENT for a calibration that doesn't
// say its device or series, or has nowhere six A/A rounds that follow each other.
absl::StatusOr<v1::BenchmarkSpec> ReadSpecWithCalibrations(const std::string& path,
                                                           const std::vector<std::string>& files);

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_MARGIN_CALIBRATION_H_
