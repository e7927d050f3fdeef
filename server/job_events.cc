#include "server/job_events.h"

#include <algorithm>
#include <cstddef>

#include "core/verdict/verdict.h"

namespace keval::server {
namespace {

void SetSeriesLook(const verdict::SeriesLook& series, v1::Look::SeriesLook* shown) {
  shown->set_series(series.series);
  shown->set_mean(series.L);
  shown->set_sup_lo(series.sup_lo);
  shown->set_sup_hi(series.sup_hi);
  shown->set_positive(series.pos);
  shown->set_valued_rounds(series.n);
}

}  // namespace

v1::JobEvent LookEvent(const verdict::Look& look, int next_look, int rounds_needed) {
  v1::JobEvent event;
  v1::Look* out = event.mutable_look();
  out->set_rounds(look.R);
  out->set_candidate_verdict(look.candidate);
  for (const verdict::SeriesLook& series : look.series) SetSeriesLook(series, out->add_series());
  out->set_next_look(next_look);
  out->set_rounds_needed(rounds_needed);
  return event;
}

void AddRunning(const std::vector<verdict::Sample>& samples, verdict::Config config, int rounds, v1::RoundDone* done) {
  constexpr int kLeast = 2;
  const auto next = std::find_if(config.looks.begin(), config.looks.end(), [&](int look) { return look >= rounds; });
  if (next == config.looks.end()) return;
  done->set_next_look(*next);
  if (rounds < kLeast) return;
  const auto index = static_cast<std::size_t>(next - config.looks.begin());
  config.a_sup = {config.a_sup[index]};
  config.a_eq = {config.a_eq[index]};
  config.a_ctl = {config.a_ctl[index]};
  config.looks = {rounds};
  const auto looks = verdict::TakeLooks(samples, config);
  if (!looks.ok() || looks->empty()) return;
  for (const verdict::SeriesLook& series : looks->back().series) {
    if (series.n >= kLeast) SetSeriesLook(series, done->add_running());
  }
}

}  // namespace keval::server
