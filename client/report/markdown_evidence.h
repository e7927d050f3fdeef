// The sections of a Markdown report that a reader unfolds: what makes the verdict believable.
#ifndef KEVAL_CLIENT_REPORT_MARKDOWN_EVIDENCE_H_
#define KEVAL_CLIENT_REPORT_MARKDOWN_EVIDENCE_H_

#include <string>

#include "client/report/report_value.h"

namespace keval::report {

// Each is "" where the report holds nothing of it.
std::string RoundsSection(const Json& report);       // All D_r by series, seconds by round.
std::string MemorySection(const Json& report);       // Incremental peaks: medians and by round.
std::string OperationsSection(const Json& report);   // Measured op and kernel counts beside the predicted traffic.
std::string DispatchSection(const Json& report);     // Which path ran, by series and arm.
std::string ContractSection(const Json& report);     // The correctness table.
std::string ExcludedSection(const Json& report);     // Discarded rounds and throttled quads.
std::string DiagnosticsSection(const Json& report);  // What never decides.
std::string PlanSection(const Json& report);         // As declared before round 1.
std::string BlocksSection(const Json& report);       // Order as realised, device readings.
std::string IdentitySection(const Json& report);     // Versions, arms, environment, timed region.

}  // namespace keval::report

#endif  // KEVAL_CLIENT_REPORT_MARKDOWN_EVIDENCE_H_
