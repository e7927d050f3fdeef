// What a collecting call asks of the worker in one seat: an arm made, timed, let go of.
#ifndef KEVAL_SERVER_WORKER_ARM_CALLS_H_
#define KEVAL_SERVER_WORKER_ARM_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/round_collector.h"
#include "server/worker/worker.pb.h"
#include "server/worker/worker_crew.h"

namespace keval::worker {

// Of one arm in one series.
struct Work {
  server::WorkShape shape;
  server::DiagnosticRegion region = server::DiagnosticRegion::kForwardBackward;
  std::uint64_t input_seed = 0;
  bool measure_peak = false;
};

// Tells who listens to the job that the series or diagnostic `name` has its turn.
void TellTurn(const server::JobArms& arms, const std::string& name, std::size_t number, std::size_t count);

// Errors of each: WorkerCrew's. REQUIRES a turn, held by the caller, for PrepareArm, AskArm and TimeBlock.
absl::StatusOr<Prepared> PrepareArm(const server::JobArms& arms, const Work& work, Seat seat, WorkerCrew* crew);

// What the prepared arm in `seat` answers to `request`, which may take it as long as a preparation.
absl::StatusOr<Reply> AskArm(Seat seat, const Request& request, WorkerCrew* crew);

// What `call`, which answers with a StatusOr, does in a turn of its own: REQUIRES that the caller holds none.
template <typename Call>
auto InTurn(WorkerCrew* crew, const Call& call) -> decltype(call()) {
  const absl::StatusOr<WorkerCrew::Turn> turn = crew->TakeTurn();
  if (!turn.ok()) {
    return turn.status();
  }
  return call();
}

// PrepareArm in a turn of its own.
absl::StatusOr<Prepared> PrepareInTurn(const server::JobArms& arms, const Work& work, Seat seat, WorkerCrew* crew);

// Lets go of the arm's tensors, for the next series has to fit too.
absl::Status ReleaseArm(Seat seat, WorkerCrew* crew);

absl::StatusOr<BlockDone> TimeBlock(int discarded, int timed, Seat seat, WorkerCrew* crew);

}  // namespace keval::worker

#endif  // KEVAL_SERVER_WORKER_ARM_CALLS_H_
