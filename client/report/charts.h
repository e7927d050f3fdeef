// The pictures of a report: what was measured, drawn so that it is read without colour and on a small screen. Each is a
// whole SVG element from the parsed report.json (docs/report_format.md); what isn't there is said in its place.
#ifndef KEVAL_CLIENT_REPORT_CHARTS_H_
#define KEVAL_CLIENT_REPORT_CHARTS_H_

#include <string>
#include <vector>

#include "client/report/report_value.h"

namespace keval::report {

// A row for each series: its gain as a mark, its interval as a line, its margin as a band about zero.
std::string ForestChart(const Json& report);

// A panel for each series: the rounds' values D_r in order, with the mean and zero.
std::string RoundsChart(const Json& report);

// SM clock, power and temperature by block in the order realised; on a machine that tells none of them, the CPU time
// that others took by round.
std::string ClocksChart(const Json& report);

// The files that `--plots svg` leaves: name and content.
struct Picture {
  std::string name;
  std::string svg;
};
std::vector<Picture> Pictures(const Json& report);

}  // namespace keval::report

#endif  // KEVAL_CLIENT_REPORT_CHARTS_H_
