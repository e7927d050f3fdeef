// Which processes a round has, and which of its series run between them. A pure function.
#ifndef KEVAL_SERVER_WORKER_ROUND_CREWS_H_
#define KEVAL_SERVER_WORKER_ROUND_CREWS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/round_collector.h"

namespace keval::worker {

enum class Seat : std::uint8_t { kBase, kCandidate, kBaseCopy };

// Processes that are there at the same time. One that takes no part in a series waits meanwhile.
struct RoundCrew {
  std::vector<Seat> seats;
  std::vector<std::size_t> series;  // Positions in the round's list, ascending.
};

// One after the other. On a GPU a single crew of three runs everything. On a CPU the controls have a fresh pair, base
// and its copy, which run nothing else: what a process has run before decides its heap's later page faults, and only so
// have both the same past. No crew is without series.
std::vector<RoundCrew> CrewsOfRound(const std::string& device, const std::vector<server::SeriesRun>& series);

}  // namespace keval::worker

#endif  // KEVAL_SERVER_WORKER_ROUND_CREWS_H_
