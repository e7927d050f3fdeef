// Which rounds of a calibration follow each other in time.
#ifndef KEVAL_CORE_VERDICT_CALIBRATION_RUNS_H_
#define KEVAL_CORE_VERDICT_CALIBRATION_RUNS_H_

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/verdict/calibration_job.h"
#include "core/verdict/characteristics.h"

namespace keval::verdict {

// Rounds of one effect, each collected right after the one before it.
using Runs = std::vector<std::vector<JobRound>>;

// By effect, in the order of the file. A run ends where a round of another effect or session comes between, where time
// goes back, and where more than five times the file's usual time between two rounds has passed; times that can't be
// read end none.
std::map<double, Runs> SplitIntoRuns(absl::Span<const CalibrationRound> rounds);

// L-hat of each disjoint six A/A rounds that follow each other: what margins come from (margin.h).
std::vector<double> AaMeans(absl::Span<const CalibrationRound> rounds);

int CountRounds(const Runs& runs);

// What can be cut from the runs in jobs of `size` rounds: of each run its first `size`, its next `size`, …
std::vector<absl::Span<const JobRound>> DisjointWindows(const Runs& runs, int size);

// Draws rounds in blocks of `block` that follow each other in a run, each place where one fits as likely as any other.
// Keeps a reference to the runs.
class BlockSource {
 public:
  BlockSource(const Runs& runs, int block);

  bool empty() const { return starts_.empty(); }  // No run is long enough.
  // Rounds of runs that blocks come from.
  int rounds() const { return rounds_; }
  // What the mean primary of a drawn job is on average.
  double mean() const { return mean_; }
  // REQUIRES !empty(). The last block is cut off at `size`.
  void DrawJob(int size, Draws* draws, std::vector<JobRound>* job) const;

 private:
  const Runs& runs_;
  const std::size_t block_;
  std::vector<std::pair<std::size_t, std::size_t>> starts_;  // Run, and place in it.
  int rounds_ = 0;
  double mean_ = 0;
};

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_CALIBRATION_RUNS_H_
