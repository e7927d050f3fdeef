#include "server/worker/evidence_calls.h"

#include "server/worker/arm_calls.h"
#include "server/worker/quad_calls.h"

namespace keval::worker {
namespace {

constexpr Seat kBothArms[] = {Seat::kBase, Seat::kCandidate};

// Prepares the arm, asks `request` of it while the device is ours, and lets go of it.
absl::StatusOr<Reply> AskOfArm(const server::JobArms& arms, const server::SeriesRun& run, int index, Seat seat,
                               const Request& request, WorkerCrew* crew) {
  const Work work = {run.shape, server::DiagnosticRegion::kForwardBackward,
                     Draw(arms.seed, Purpose::kProfile, 0, index), false};
  return InTurn(crew, [&]() -> absl::StatusOr<Reply> {
    if (absl::Status status = PrepareArm(arms, work, seat, crew).status(); !status.ok()) {
      return status;
    }
    absl::StatusOr<Reply> reply = AskArm(seat, request, crew);
    if (reply.ok()) {
      if (absl::Status status = ReleaseArm(seat, crew); !status.ok()) {
        return status;
      }
    }
    return reply;
  });
}

}  // namespace

absl::StatusOr<server::ProfileData::Arm> CollectCounts(const server::JobArms& arms, const server::SeriesRun& run,
                                                       int index, Seat seat, WorkerCrew* crew) {
  Request request;
  request.mutable_profile();
  const absl::StatusOr<Reply> reply = AskOfArm(arms, run, index, seat, request, crew);
  if (!reply.ok()) {
    return reply.status();
  }
  if (!reply->has_profiled()) {
    return crew->FailAsHarness(seat, "answered something else to a profile");
  }
  const Profiled& profiled = reply->profiled();
  server::ProfileData::Arm counts;
  counts.ops.insert(profiled.ops().begin(), profiled.ops().end());
  counts.kernels.insert(profiled.kernels().begin(), profiled.kernels().end());
  counts.kernel_ns.insert(profiled.kernel_ns().begin(), profiled.kernel_ns().end());
  counts.kernels_note = profiled.kernels_note();
  return counts;
}

absl::StatusOr<server::DramCount> CollectDram(const server::JobArms& arms, const server::SeriesRun& run, int index,
                                              Seat seat, WorkerCrew* crew) {
  Request request;
  request.mutable_count_dram();
  const absl::StatusOr<Reply> reply = AskOfArm(arms, run, index, seat, request, crew);
  if (!reply.ok()) {
    return reply.status();
  }
  if (!reply->has_dram_counted()) {
    return crew->FailAsHarness(seat, "answered something else to a count of bytes");
  }
  const DramCounted& counted = reply->dram_counted();
  return server::DramCount{counted.note(), counted.read_bytes(), counted.written_bytes()};
}

absl::Status CollectDiagnostic(const server::JobArms& arms, const server::DiagnosticRun& run, int index,
                               WorkerCrew* crew, std::vector<verdict::Sample>* samples) {
  const Work work = {run.shape, run.region, Draw(arms.seed, Purpose::kDiagnose, 0, index), false};
  absl::Status status;
  for (const Seat seat : kBothArms) {
    if (status.ok() && !arms.sequential) {
      status = PrepareInTurn(arms, work, seat, crew).status();
    }
  }
  if (!status.ok()) {
    return status;
  }
  const QuadPlan plan = {run.name,
                         verdict::Role::kPrimary,
                         0,
                         run.quads,
                         run.timed_repetitions,
                         run.discarded_repetitions,
                         Draw(arms.seed, Purpose::kDiagnose, 1, index),
                         Seat::kCandidate,
                         work};
  std::vector<server::BlockRecord> blocks;
  status = CollectQuads(arms, plan, crew, samples, &blocks);
  for (const Seat seat : kBothArms) {
    if (status.ok() && !arms.sequential) {
      status = ReleaseArm(seat, crew);
    }
  }
  return status;
}

}  // namespace keval::worker
