// A report for a pull request.
#ifndef KEVAL_CLIENT_REPORT_MARKDOWN_H_
#define KEVAL_CLIENT_REPORT_MARKDOWN_H_

#include <nlohmann/json.hpp>
#include <string>

namespace keval::report {

// The Markdown (GitHub's dialect) of a parsed report.json. What the report lacks is left out or shown as "–". Pure, and
// the same bytes under every locale.
std::string RenderMarkdown(const nlohmann::json& report);

}  // namespace keval::report

#endif  // KEVAL_CLIENT_REPORT_MARKDOWN_H_
