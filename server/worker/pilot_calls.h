// The pilot: how long base's turns take and what either arm's process takes of the device, before the plan is made.
#ifndef KEVAL_SERVER_WORKER_PILOT_CALLS_H_
#define KEVAL_SERVER_WORKER_PILOT_CALLS_H_

#include <vector>

#include "absl/status/status.h"
#include "server/round_collector.h"
#include "server/worker/worker_crew.h"

namespace keval::worker {

// Starts `crew`'s base, and beside it the candidate where that tells something new, and fills `data`. Errors:
// WorkerCrew's. REQUIRES a crew that was not started and a caller that holds no turn.
absl::Status CollectPilot(const server::JobArms& arms, const std::vector<server::SeriesRun>& series, WorkerCrew* crew,
                          server::PilotData* data);

}  // namespace keval::worker

#endif  // KEVAL_SERVER_WORKER_PILOT_CALLS_H_
