// A report's files in a folder.
#ifndef KEVAL_CLIENT_CLI_REPORT_DIR_H_
#define KEVAL_CLIENT_CLI_REPORT_DIR_H_

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "keval/connection.h"

namespace keval::cli {

// report.json's text; DATA_LOSS where the server sent none.
absl::StatusOr<std::string> ReportText(const std::vector<ReportFile>& files);
// Rendered whole, in a few lines, and as the document that it is, its keys in their order. DATA_LOSS where
// `report_json` is no JSON object, has a key twice in an object or more than 64 levels.
absl::StatusOr<std::string> ReportMarkdown(const std::string& report_json);
absl::StatusOr<std::string> ReportLines(const std::string& report_json);
absl::StatusOr<nlohmann::ordered_json> ReportAsWritten(const std::string& report_json);

// Makes `folder` where it is missing and tries whether a report can be written into it, before anybody waits for one.
// The errors of WriteReport; leaves no file.
absl::Status PrepareReportDir(const std::string& folder);

// Makes `folder` where it is missing, and writes the files with report.html, report.md and junit.xml beside them, each
// whole; with `pictures` those of the page as SVG files too.
absl::Status WriteReport(const std::string& folder, const std::vector<ReportFile>& files, bool pictures = false);

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_REPORT_DIR_H_
