#include "client/cli/progress_line.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/number.h"
#include "base/text.h"
#include "core/verdict/explanation.h"
#include "proto/job_state.h"

namespace keval::cli {
namespace {

constexpr std::size_t kNameBytes = 128;

}  // namespace

std::string IntervalText(const v1::Look::SeriesLook& series) {
  return absl::StrCat("[", verdict::GainPercentText(series.sup_lo()), ", ", verdict::GainPercentText(series.sup_hi()),
                      "]");
}

std::string DurationText(double seconds) {
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 3600;
  constexpr double kMost = 1e9;
  const std::int64_t whole = seconds > 0 ? std::llround(std::min(seconds, kMost)) : 0;
  if (whole < 2 * kMinute) return absl::StrCat(whole, " s");
  if (whole < 2 * kHour) return absl::StrCat((whole + kMinute / 2) / kMinute, " min");
  return absl::StrCat(whole / kHour, " h ", whole % kHour / kMinute, " min");
}

void ProgressLine::Take(const v1::JobEvent& event) {
  switch (event.event_case()) {
    case v1::JobEvent::kJob:
      job_ = event.job();
      rounds_done_ = job_.rounds_done();
      for (const auto& series : job_.plan().series()) {
        if (headline_.empty() && series.role() == "primary") headline_ = series.series();
      }
      return;
    case v1::JobEvent::kRoundDone:
      rounds_done_ = event.round_done().round();
      seconds_ += event.round_done().seconds();
      next_look_ = event.round_done().next_look();
      for (const auto& series : event.round_done().running()) {
        if (series.series() == headline_) running_ = series;
      }
      return;
    case v1::JobEvent::kLook:
      next_look_ = event.look().next_look();
      return;
    case v1::JobEvent::kProgress:
      now_ = event.progress();
      return;
    default:
      return;
  }
}

std::string ProgressLine::TimeLeft() const {
  if (rounds_done_ == 0 || !(seconds_ > 0)) return "";
  const double each = seconds_ / rounds_done_;
  const std::string most = DurationText(each * (job_.rounds_planned() - rounds_done_));
  if (next_look_ <= rounds_done_) return absl::StrCat("at most ", most);
  return absl::StrCat(DurationText(each * (next_look_ - rounds_done_)), " to the look, at most ", most);
}

std::string ProgressLine::Text() const {
  if (job_.name().empty() || HasEnded(job_.state())) return "";
  std::vector<std::string> parts;
  const bool in_rounds = now_.round() > 0 || (now_.phase().empty() && rounds_done_ > 0);
  if (in_rounds) {
    parts.push_back(
        absl::StrCat("round ", now_.round() > 0 ? now_.round() : rounds_done_, " of at most ", job_.rounds_planned()));
  } else {
    parts.push_back(now_.phase().empty() ? v1::BenchmarkJob::State_Name(job_.state())
                                         : PrintableText(now_.phase(), kNameBytes));
  }
  if (!now_.series().empty()) {
    parts.push_back(absl::StrCat(now_.round() > 0 ? "shape " : "", now_.series_number(), " of ", now_.series_count(),
                                 " ", PrintableText(now_.series(), kNameBytes)));
  }
  if (in_rounds && next_look_ > 0) parts.push_back(absl::StrCat("look at ", next_look_));
  if (running_.valued_rounds() > 0) {
    parts.push_back(absl::StrCat(verdict::GainPercentText(running_.mean()), " ", IntervalText(running_)));
  }
  if (const std::string left = TimeLeft(); in_rounds && !left.empty()) parts.push_back(left);
  return absl::StrJoin(parts, " · ");
}

}  // namespace keval::cli
