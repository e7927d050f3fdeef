// Where a running job stands, in one line for a person.
#ifndef KEVAL_CLIENT_CLI_PROGRESS_LINE_H_
#define KEVAL_CLIENT_CLI_PROGRESS_LINE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "keval/v1/benchmark.pb.h"

namespace keval::cli {

// "[+0.48 %, +1.00 %]"
std::string IntervalText(const v1::Look::SeriesLook& series);

// Seconds as a person says them: "40 s", "3 min", "2 h 5 min".
std::string DurationText(double seconds);

// Takes a job's events as they come, replayed ones too. Not thread-safe.
class ProgressLine {
 public:
  void Take(const v1::JobEvent& event);

  // "round 4 of at most 24 · shape 2 of 7 4096x2048x50257/bfloat16/bias · look at 6 · +0.74 % [+0.48 %, +1.00 %] · 40 s
  // to the look, at most 6 min": what of it is known. The interval is the first primary's. Empty before the first event
  // and once the job has ended.
  std::string Text() const;

 private:
  std::string TimeLeft() const;

  v1::BenchmarkJob job_;
  v1::JobProgress now_;
  std::string headline_;  // The first primary's series.
  v1::Look::SeriesLook running_;
  int rounds_done_ = 0;
  int next_look_ = 0;
  double seconds_ = 0;  // Of all rounds done.
};

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_PROGRESS_LINE_H_
