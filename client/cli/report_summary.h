// A report in a few lines, for the end of `keval run`.
#ifndef KEVAL_CLIENT_CLI_REPORT_SUMMARY_H_
#define KEVAL_CLIENT_CLI_REPORT_SUMMARY_H_

#include <string>

#include <nlohmann/json.hpp>

namespace keval::cli {

// One line for each series of a parsed report.json: times, gain and its interval, rounds, status. Figures that the
// report lacks are shown as "-"; every text is made printable. Pure.
std::string ReportSummary(const nlohmann::json& report);

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_REPORT_SUMMARY_H_
