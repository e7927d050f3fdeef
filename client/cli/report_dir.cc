#include "client/cli/report_dir.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "client/cli/report_summary.h"
#include "client/report/charts.h"
#include "client/report/html.h"
#include "client/report/junit.h"
#include "client/report/markdown.h"
#include "core/verdict/strict_json.h"

namespace keval::cli {
namespace {

// Strict: a report nested without limit would outgrow the stack of whoever walks through it.
absl::StatusOr<nlohmann::json> ParseReport(const std::string& text) {
  auto report = verdict::ParseStrictJson("the server's report.json", text);
  if (!report.ok()) return absl::DataLossError(report.status().message());
  if (!report->is_object()) return absl::DataLossError("the server's report.json is no JSON object");
  return report;
}

}  // namespace

absl::StatusOr<std::string> ReportText(const std::vector<ReportFile>& files) {
  for (const ReportFile& file : files) {
    if (file.name == "report.json") return file.contents;
  }
  return absl::DataLossError("the server's report has no report.json");
}

absl::StatusOr<std::string> ReportMarkdown(const std::string& report_json) {
  const auto report = ParseReport(report_json);
  if (!report.ok()) return report.status();
  return report::RenderMarkdown(*report);
}

absl::StatusOr<std::string> ReportLines(const std::string& report_json) {
  const auto report = ParseReport(report_json);
  if (!report.ok()) return report.status();
  return ReportSummary(*report);
}

absl::StatusOr<nlohmann::ordered_json> ReportAsWritten(const std::string& report_json) {
  if (const auto report = ParseReport(report_json); !report.ok()) return report.status();
  return nlohmann::ordered_json::parse(report_json);
}

absl::Status PrepareReportDir(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return FileError(folder, "can't be made", error.value());
  return AtomicFile::Create(absl::StrCat(folder, "/report.json")).status();  // Gone with the object, uncommitted.
}

absl::Status WriteReport(const std::string& folder, const std::vector<ReportFile>& files, bool pictures) {
  const auto text = ReportText(files);
  if (!text.ok()) return text.status();
  const auto report = ParseReport(*text);
  if (!report.ok()) return report.status();
  if (auto status = PrepareReportDir(folder); !status.ok()) return status;
  std::vector<ReportFile> all = files;
  all.push_back({"report.md", report::RenderMarkdown(*report)});
  all.push_back({"report.html", report::RenderHtml(*report)});
  all.push_back({"junit.xml", report::RenderJunit(*report)});
  if (pictures) {
    for (report::Picture& picture : report::Pictures(*report)) {
      all.push_back({std::move(picture.name), std::move(picture.svg)});
    }
  }
  for (const ReportFile& file : all) {
    if (auto status = WriteFileAtomically(absl::StrCat(folder, "/", file.name), file.contents); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace keval::cli
