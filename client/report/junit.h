// A report for what reads JUnit XML.
#ifndef KEVAL_CLIENT_REPORT_JUNIT_H_
#define KEVAL_CLIENT_REPORT_JUNIT_H_

#include <nlohmann/json.hpp>
#include <string>

namespace keval::report {

// The JUnit file of a parsed report.json: well-formed XML 1.0 in UTF-8 with one test suite, whose test cases are the
// verdict, each series and each contract row, passed, failed or skipped as docs/report_format.md says. Text that XML
// can hold reads back unchanged; what it can't is shown by a visible substitute. Pure, and the same bytes under every
// locale.
std::string RenderJunit(const nlohmann::json& report);

}  // namespace keval::report

#endif  // KEVAL_CLIENT_REPORT_JUNIT_H_
