// What a job will do, fixed before its first round: repetitions from the pilot, margins, predicted device seconds.
// Pure functions.
#ifndef KEVAL_SERVER_JOB_PLAN_H_
#define KEVAL_SERVER_JOB_PLAN_H_

#include <vector>

#include "absl/status/status.h"
#include "core/verdict/verdict.h"
#include "keval/v1/benchmark.pb.h"
#include "server/job_calibration.h"
#include "server/round_collector.h"

namespace keval::server {

inline constexpr char kProcedureVersion[] = "2";

// Every series of `spec` (as NormalizeSpec left it) in the order primaries, guards, controls; a control's name is
// "ctl:" and its shape's. A series without a time in `pilot` (validate_only) keeps the spec's repetitions. `noise`
// gives the margins that the spec doesn't.
v1::JobPlan MakePlan(const v1::BenchmarkSpec& spec, const PilotData& pilot, const NoiseRecord& noise);

// Seconds for which a round of one series has the device: both arms, whose turns take `base` and `other`, are prepared;
// each of the four blocks of each quad has its repetitions, with fresh inputs before and verification after each, and,
// `sequential`, a preparation of its own.
double SeriesDeviceSeconds(const v1::JobPlan::SeriesPlan& series, const TurnSeconds& base, const TurnSeconds& other,
                           bool sequential);

// FAILED_PRECONDITION with both numbers where the plan predicts more device seconds than the spec's budget.
absl::Status CheckBudget(const v1::BenchmarkSpec& spec, const v1::JobPlan& plan);

// What the collector runs.
std::vector<SeriesRun> PlannedRuns(const v1::JobPlan& plan);

// Diagnostics that the spec asks for: the chunk sweep on each primary, backward alone and the isolated weight gradient
// on primaries and guards.
std::vector<DiagnosticRun> PlannedDiagnostics(const v1::BenchmarkSpec& spec, const v1::JobPlan& plan);

// The decision's parameters: looks and levels of the spec, a margin for each primary and guard by name.
verdict::Config VerdictConfig(const v1::BenchmarkSpec& spec, const v1::JobPlan& plan);

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_PLAN_H_
