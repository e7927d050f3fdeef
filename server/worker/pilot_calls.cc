#include "server/worker/pilot_calls.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "server/worker/arm_calls.h"
#include "server/worker/quad_calls.h"

namespace keval::worker {
namespace {

using Seconds = std::chrono::duration<double>;
using std::chrono::steady_clock;

double SecondsSince(steady_clock::time_point begin) { return Seconds(steady_clock::now() - begin).count(); }

// On a GPU LibTorch says what its tensors take and not what its context does. That is what a second process takes by
// being there, unless others came or went meanwhile; `assumed` then.
double ContextBytes(std::int64_t free_before, std::int64_t free_after, bool* assumed) {
  constexpr double kMiB = 1048576;
  constexpr double kAssumed = 512 * kMiB;  // About an H200's.
  const auto taken = static_cast<double>(free_before - free_after);
  *assumed = free_before <= 0 || free_after <= 0 || taken < 64 * kMiB || taken > 4096 * kMiB;
  return *assumed ? kAssumed : taken;
}

// A CPU's process holds its program and libraries beside the inputs; a GPU's caching allocator what calls took.
server::WorkerBytes BytesOf(const Prepared& prepared, bool cpu, const server::WorkerBytes& context) {
  server::WorkerBytes bytes = context;
  bytes.inputs = static_cast<double>(prepared.input_bytes());
  bytes.peak = static_cast<double>(prepared.peak_bytes());
  const double others = std::max(0.0, static_cast<double>(prepared.held_bytes()) - bytes.inputs);
  (cpu ? bytes.context : bytes.peak) = cpu ? others : std::max(bytes.peak, others);
  return bytes;
}

server::WorkerBytes Larger(const server::WorkerBytes& a, const server::WorkerBytes& b) {
  return {std::max(a.context, b.context), std::max(a.inputs, b.inputs), std::max(a.peak, b.peak), a.context_assumed};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Median of a few calls; of one where they take long. `repetition_seconds`: each with all that belongs to it.
absl::StatusOr<double> TimeBase(WorkerCrew* crew, double* repetition_seconds) {
  constexpr double kLongNs = 0.25e9;
  constexpr int kCalls = 5;
  steady_clock::time_point begin = steady_clock::now();
  absl::StatusOr<BlockDone> first = TimeBlock(0, 1, Seat::kBase, crew);
  if (!first.ok()) {
    return first.status();
  }
  *repetition_seconds = SecondsSince(begin);
  if (static_cast<double>(first->ns(0)) > kLongNs) {
    return static_cast<double>(first->ns(0));
  }
  begin = steady_clock::now();
  absl::StatusOr<BlockDone> more = TimeBlock(1, kCalls, Seat::kBase, crew);
  if (!more.ok()) {
    return more.status();
  }
  *repetition_seconds = SecondsSince(begin) / (1 + kCalls);
  return Median(std::vector<double>(more->ns().begin(), more->ns().end()));
}

// Base's process, then, where it tells something new, the candidate's beside it; both with the device ours, so that
// what the second one takes is its context.
absl::Status StartPilot(const server::JobArms& arms, WorkerCrew* crew, server::PilotData* data,
                        server::WorkerBytes* context) {
  if (absl::Status status = crew->Start({Seat::kBase}); !status.ok()) {
    return status;
  }
  data->free_bytes = static_cast<double>(crew->free_bytes(Seat::kBase));
  if (arms.device == "cpu" && arms.base_variant == arms.candidate_variant) {
    return absl::OkStatus();
  }
  if (absl::Status status = crew->Start({Seat::kCandidate}); !status.ok()) {
    return status;
  }
  if (arms.device != "cpu") {
    context->context =
        ContextBytes(crew->free_bytes(Seat::kBase), crew->free_bytes(Seat::kCandidate), &context->context_assumed);
  }
  return absl::OkStatus();
}

// What the candidate takes in one series.
absl::Status MeasureCandidate(const server::JobArms& arms, const server::SeriesRun& run, const Work& work,
                              const server::WorkerBytes& context, WorkerCrew* crew, server::PilotData* data) {
  absl::StatusOr<Prepared> prepared = PrepareArm(arms, work, Seat::kCandidate, crew);
  if (!prepared.ok()) {
    return prepared.status();
  }
  server::WorkerBytes& bytes = data->bytes[run.series];
  bytes = Larger(bytes, BytesOf(*prepared, arms.device == "cpu", context));
  return ReleaseArm(Seat::kCandidate, crew);
}

}  // namespace

absl::Status CollectPilot(const server::JobArms& arms, const std::vector<server::SeriesRun>& series, WorkerCrew* crew,
                          server::PilotData* data) {
  server::WorkerBytes context;
  absl::Status status = InTurn(crew, [&] { return StartPilot(arms, crew, data, &context); });
  if (!status.ok()) {
    return status;
  }
  int index = 0;
  for (const server::SeriesRun& run : series) {
    TellTurn(arms, run.series, static_cast<std::size_t>(index), series.size());
    const Work work = {run.shape, server::DiagnosticRegion::kForwardBackward,
                       Draw(arms.seed, Purpose::kPilot, 0, index++), true};
    absl::StatusOr<WorkerCrew::Turn> turn = crew->TakeTurn();
    if (!turn.ok()) {
      return turn.status();
    }
    server::TurnSeconds& seconds = data->turns[run.series];
    const auto begin = steady_clock::now();
    absl::StatusOr<Prepared> prepared = PrepareArm(arms, work, Seat::kBase, crew);
    if (!prepared.ok()) {
      return prepared.status();
    }
    seconds.preparation = SecondsSince(begin);
    data->bytes[run.series] = BytesOf(*prepared, arms.device == "cpu", context);
    absl::StatusOr<double> ns = TimeBase(crew, &seconds.repetition);
    if (!ns.ok()) {
      return ns.status();
    }
    data->base_ns[run.series] = *ns;
    // Base's tensors go first: what two at a time need is only about to be found out.
    status = ReleaseArm(Seat::kBase, crew);
    if (status.ok() && run.role != verdict::Role::kControl && arms.base_variant != arms.candidate_variant) {
      status = MeasureCandidate(arms, run, work, context, crew, data);
    }
    if (!status.ok()) {
      return status;
    }
  }
  if (data->free_bytes > 0) {  // Base's process was there when it asked.
    data->free_bytes += data->bytes.empty() ? 0 : data->bytes.begin()->second.context;
  }
  return absl::OkStatus();
}

}  // namespace keval::worker
