#include "server/worker/arm_calls.h"

#include <cmath>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "server/worker/worker_process.h"

namespace keval::worker {
namespace {

// A preparation makes about as many calls as a block, and fills the inputs.
constexpr int kPrepareLimitBlocks = 2;

Region RegionOf(server::DiagnosticRegion region) {
  switch (region) {
    case server::DiagnosticRegion::kBackward:
      return BACKWARD;
    case server::DiagnosticRegion::kWeightGradient:
      return WEIGHT_GRADIENT;
    default:
      return FORWARD_BACKWARD;
  }
}

// How much longer the calls of a seat are made. The one that isn't slowed waits for nothing, but pays what an injected
// delay costs besides its length.
std::optional<double> DelayFraction(const server::JobArms& arms, Seat seat) {
  if (arms.injected_effect == 0) {
    return std::nullopt;
  }
  const bool slowed = (seat == Seat::kCandidate) == (arms.injected_effect < 0);
  return slowed ? std::expm1(std::abs(arms.injected_effect)) : 0.0;
}

}  // namespace

void TellTurn(const server::JobArms& arms, const std::string& name, std::size_t number, std::size_t count) {
  if (arms.on_turn) {
    arms.on_turn(name, static_cast<int>(number), static_cast<int>(count));
  }
}

absl::StatusOr<Prepared> PrepareArm(const server::JobArms& arms, const Work& work, Seat seat, WorkerCrew* crew) {
  Request request;
  Prepare& prepare = *request.mutable_prepare();
  prepare.set_variant(crew->VariantOf(seat));
  prepare.set_base_variant(arms.base_variant);
  prepare.set_region(RegionOf(work.region));
  prepare.set_input_seed(work.input_seed);
  prepare.set_force_variant(arms.force_variant);
  prepare.set_measure_peak(work.measure_peak);
  if (const std::optional<double> fraction = DelayFraction(arms, seat); fraction.has_value()) {
    prepare.set_delay_fraction(*fraction);
  }
  Shape& shape = *prepare.mutable_shape();
  shape.set_num_tokens(work.shape.num_tokens);
  shape.set_hidden_size(work.shape.hidden_size);
  shape.set_vocab_size(work.shape.vocab_size);
  shape.set_dtype(std::string(DTypeName(work.shape.dtype)));
  shape.set_bias(work.shape.bias);
  shape.set_autocast(work.shape.autocast);
  shape.set_chunk_elems(work.shape.chunk_elems);
  absl::StatusOr<Reply> reply = AskArm(seat, request, crew);
  if (!reply.ok()) {
    return reply.status();
  }
  if (!reply->has_prepared()) {
    return crew->FailAsHarness(seat, "answered something else to a preparation");
  }
  return reply->prepared();
}

absl::StatusOr<Reply> AskArm(Seat seat, const Request& request, WorkerCrew* crew) {
  return crew->Ask(seat, request, kPrepareLimitBlocks * crew->hang_timeout());
}

absl::StatusOr<Prepared> PrepareInTurn(const server::JobArms& arms, const Work& work, Seat seat, WorkerCrew* crew) {
  return InTurn(crew, [&] { return PrepareArm(arms, work, seat, crew); });
}

absl::Status ReleaseArm(Seat seat, WorkerCrew* crew) {
  Request request;
  request.mutable_prepare();
  return crew->Ask(seat, request, crew->hang_timeout()).status();
}

absl::StatusOr<BlockDone> TimeBlock(int discarded, int timed, Seat seat, WorkerCrew* crew) {
  Request request;
  RunBlock& block = *request.mutable_run_block();
  block.set_discarded_repetitions(discarded);
  block.set_timed_repetitions(timed);
  for (const int id : OwnProcessIds()) {
    block.add_own_process_ids(id);
  }
  absl::StatusOr<Reply> reply = crew->Ask(seat, request, crew->hang_timeout());
  if (!reply.ok()) {
    return reply.status();
  }
  if (!reply->has_block_done() || reply->block_done().ns_size() != timed) {
    return crew->FailAsHarness(seat, "answered something else to a block");
  }
  return reply->block_done();
}

}  // namespace keval::worker
