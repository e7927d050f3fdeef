// report.json as a page for people: one file that needs nothing else, no network and no script.
#ifndef KEVAL_CLIENT_REPORT_HTML_H_
#define KEVAL_CLIENT_REPORT_HTML_H_

#include <string>

#include "client/report/report_value.h"

namespace keval::report {

// A function of the document alone: HTML 5 with the pictures of charts.h inline. What came from outside is escaped;
// what isn't there is left out or shown as "–". Figures that fill tables are in report.md.
std::string RenderHtml(const Json& report);

}  // namespace keval::report

#endif  // KEVAL_CLIENT_REPORT_HTML_H_
