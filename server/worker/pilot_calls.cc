#include "server/worker/pilot_calls.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>

#include "server/worker/arm_calls.h"
#include "server/worker/quad_calls.h"

namespace keval::worker {
namespace {

using Seconds = std::chrono::duration<double>;
using std::chrono::steady_clock;

double SecondsSince(steady_clock::time_point begin) { return Seconds(steady_clock::now() - begin).count(); }

// On a GPU LibTorch says what its tensors take and not what its context does. That is what a second process takes by
// being there, unless others came or went meanwhile; `assumed` then.
double ContextBytes(std::optional<double> free_before, std::optional<double> free_after, bool* assumed) {
  constexpr double kMiB = 1048576;
  constexpr double kAssumed = 512 * kMiB;  // About an H200's.
  const double taken = free_before.has_value() && free_after.has_value() ? *free_before - *free_after : 0;
  *assumed = taken < 64 * kMiB || taken > 4096 * kMiB;
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

// Median of a few calls of the prepared arm in `seat`; of one where they take long. `repetition_seconds`: each with all
// that belongs to it.
absl::StatusOr<double> TimeCalls(Seat seat, WorkerCrew* crew, double* repetition_seconds) {
  constexpr double kLongNs = 0.25e9;
  constexpr int kCalls = 5;
  steady_clock::time_point begin = steady_clock::now();
  absl::StatusOr<BlockDone> first = TimeBlock(0, 1, seat, crew);
  if (!first.ok()) {
    return first.status();
  }
  *repetition_seconds = SecondsSince(begin);
  if (static_cast<double>(first->ns(0)) > kLongNs) {
    return static_cast<double>(first->ns(0));
  }
  begin = steady_clock::now();
  absl::StatusOr<BlockDone> more = TimeBlock(1, kCalls, seat, crew);
  if (!more.ok()) {
    return more.status();
  }
  *repetition_seconds = SecondsSince(begin) / (1 + kCalls);
  return Median(std::vector<double>(more->ns().begin(), more->ns().end()));
}

// Bytes of the device's memory that are free while it is ours, so that between two readings nobody else of this server
// computes, and what its allocator kept has been given back; nullopt where that can't be told.
absl::StatusOr<std::optional<double>> ReadFreeBytes(Seat seat, WorkerCrew* crew) {
  Request request;
  request.mutable_read_memory();
  const absl::StatusOr<Reply> reply = InTurn(crew, [&] { return crew->Ask(seat, request, crew->hang_timeout()); });
  if (!reply.ok()) {
    return reply.status();
  }
  if (!reply->has_memory_read()) {
    return crew->FailAsHarness(seat, "answered something else to a question for memory");
  }
  const MemoryRead& read = reply->memory_read();
  return read.has_free_bytes() ? std::optional(static_cast<double>(read.free_bytes())) : std::nullopt;
}

// Base's process, then, where it tells something new, the candidate's beside it: what that takes by being there is a
// context. Starting them takes seconds, in which others may have the device.
absl::Status StartPilot(const server::JobArms& arms, WorkerCrew* crew, server::PilotData* data,
                        server::WorkerBytes* context) {
  if (absl::Status status = crew->Start({Seat::kBase}); !status.ok()) {
    return status;
  }
  absl::StatusOr<std::optional<double>> before = ReadFreeBytes(Seat::kBase, crew);
  if (!before.ok()) {
    return before.status();
  }
  data->free_bytes = *before;
  if (arms.device == "cpu" && arms.base_variant == arms.candidate_variant) {
    return absl::OkStatus();
  }
  if (absl::Status status = crew->Start({Seat::kCandidate}); !status.ok()) {
    return status;
  }
  if (arms.device == "cpu") {
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<double>> after = ReadFreeBytes(Seat::kCandidate, crew);
  if (!after.ok()) {
    return after.status();
  }
  context->context = ContextBytes(*before, *after, &context->context_assumed);
  return absl::OkStatus();
}

// What the candidate takes in one series, memory and time.
absl::Status MeasureCandidate(const server::JobArms& arms, const server::SeriesRun& run, const Work& work,
                              const server::WorkerBytes& context, WorkerCrew* crew, server::PilotData* data) {
  server::TurnSeconds& seconds = data->candidate_turns[run.series];
  const auto begin = steady_clock::now();
  absl::StatusOr<Prepared> prepared = PrepareArm(arms, work, Seat::kCandidate, crew);
  if (!prepared.ok()) {
    return prepared.status();
  }
  seconds.preparation = SecondsSince(begin);
  server::WorkerBytes& bytes = data->bytes[run.series];
  bytes = Larger(bytes, BytesOf(*prepared, arms.device == "cpu", context));
  if (absl::Status status = TimeCalls(Seat::kCandidate, crew, &seconds.repetition).status(); !status.ok()) {
    return status;
  }
  return ReleaseArm(Seat::kCandidate, crew);
}

}  // namespace

absl::Status CollectPilot(const server::JobArms& arms, const std::vector<server::SeriesRun>& series, WorkerCrew* crew,
                          server::PilotData* data) {
  server::WorkerBytes context;
  absl::Status status = StartPilot(arms, crew, data, &context);
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
    absl::StatusOr<double> ns = TimeCalls(Seat::kBase, crew, &seconds.repetition);
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
  if (data->free_bytes.has_value()) {  // Base's process was there when it asked.
    *data->free_bytes += data->bytes.empty() ? 0 : data->bytes.begin()->second.context;
  }
  return absl::OkStatus();
}

}  // namespace keval::worker
