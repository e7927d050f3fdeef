// The evidence beside the times, from a crew's workers: op, kernel and byte counts, and diagnostics. None of it
// decides.
#ifndef KEVAL_SERVER_WORKER_EVIDENCE_CALLS_H_
#define KEVAL_SERVER_WORKER_EVIDENCE_CALLS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/verdict/samples.h"
#include "server/round_collector.h"
#include "server/worker/worker_crew.h"

namespace keval::worker {

// Ops and kernels of the arm in `seat`; its bytes are left uncounted. `index`: the series' number, for its input
// values. Errors of all three: the crew's.
absl::StatusOr<server::ProfileData::Arm> CollectCounts(const server::JobArms& arms, const server::SeriesRun& run,
                                                       int index, Seat seat, WorkerCrew* crew);

// In a crew that has traced no kernels: one process can't do both.
absl::StatusOr<server::DramCount> CollectDram(const server::JobArms& arms, const server::SeriesRun& run, int index,
                                              Seat seat, WorkerCrew* crew);

// Appends the run's quads of base and candidate to `samples`, round 0.
absl::Status CollectDiagnostic(const server::JobArms& arms, const server::DiagnosticRun& run, int index,
                               WorkerCrew* crew, std::vector<verdict::Sample>* samples);

}  // namespace keval::worker

#endif  // KEVAL_SERVER_WORKER_EVIDENCE_CALLS_H_
