#include "server/worker/round_crews.h"

#include "core/verdict/samples.h"

namespace keval::worker {

std::vector<RoundCrew> CrewsOfRound(const std::string& device, const std::vector<server::SeriesRun>& series) {
  RoundCrew all = {{Seat::kBase, Seat::kCandidate, Seat::kBaseCopy}, {}};
  RoundCrew compared = {{Seat::kBase, Seat::kCandidate}, {}};
  RoundCrew controls = {{Seat::kBase, Seat::kBaseCopy}, {}};
  for (std::size_t i = 0; i < series.size(); ++i) {
    RoundCrew& pair = series[i].role == verdict::Role::kControl ? controls : compared;
    (device == "cpu" ? pair : all).series.push_back(i);
  }
  std::vector<RoundCrew> crews;
  for (const RoundCrew& crew : {all, compared, controls}) {
    if (!crew.series.empty()) {
      crews.push_back(crew);
    }
  }
  return crews;
}

}  // namespace keval::worker
