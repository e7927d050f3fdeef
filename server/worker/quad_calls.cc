#include "server/worker/quad_calls.h"

namespace keval::worker {
namespace {

server::DeviceReading ReadingOf(const DeviceReading& reading) {
  return {reading.sm_clock_mhz(),        reading.memory_clock_mhz(), reading.power_watts(),
          reading.temperature_celsius(), reading.throttle_reasons(), reading.other_processes()};
}

// One block; where the arms are sequential, with the arm's tensors made before it and let go of after it.
absl::StatusOr<BlockDone> CollectBlock(const server::JobArms& arms, const QuadPlan& plan, Seat seat, WorkerCrew* crew) {
  if (!arms.sequential) {
    return TimeBlock(plan.discarded, plan.timed, seat, crew);
  }
  if (absl::Status status = PrepareArm(arms, plan.work, seat, crew).status(); !status.ok()) {
    return status;
  }
  absl::StatusOr<BlockDone> block = TimeBlock(plan.discarded, plan.timed, seat, crew);
  if (block.ok()) {
    if (absl::Status status = ReleaseArm(seat, crew); !status.ok()) {
      return status;
    }
  }
  return block;
}

}  // namespace

// The finaliser of SplitMix64.
std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

std::uint64_t Draw(std::uint64_t seed, Purpose purpose, int a, int b) {
  std::uint64_t state = Mix(seed + 0x9e3779b97f4a7c15ULL);
  for (const std::uint64_t part :
       {static_cast<std::uint64_t>(purpose), static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)}) {
    state = Mix(state ^ (part + 0x9e3779b97f4a7c15ULL));
  }
  return state;
}

absl::Status CollectQuads(const server::JobArms& arms, const QuadPlan& plan, WorkerCrew* crew,
                          std::vector<verdict::Sample>* samples, std::vector<server::BlockRecord>* blocks) {
  for (int quad = 0; quad < plan.quads; ++quad) {
    const bool base_first = (Mix(plan.order_seed + static_cast<std::uint64_t>(quad)) & 1) == 0;
    absl::StatusOr<WorkerCrew::Turn> turn = crew->TakeTurn();
    if (!turn.ok()) {
      return turn.status();
    }
    for (int pos = 0; pos < 4; ++pos) {
      const bool outer = pos == 0 || pos == 3;
      const bool is_base = outer == base_first;
      absl::StatusOr<BlockDone> block = CollectBlock(arms, plan, is_base ? Seat::kBase : plan.second, crew);
      if (!block.ok()) {
        return block.status();
      }
      const char arm = is_base ? 'A' : 'B';
      for (int rep = 0; rep < plan.timed; ++rep) {
        samples->push_back(
            {plan.series, plan.role, plan.round, quad, pos, arm, rep, block->ns(rep), block->throttled()});
      }
      blocks->push_back({plan.series, quad, pos, arm, ReadingOf(block->before()), ReadingOf(block->after()),
                         block->reasons_between()});
    }
  }
  return absl::OkStatus();
}

}  // namespace keval::worker
