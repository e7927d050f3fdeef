#include "server/job_end.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace keval::server {

JobEnd JudgedEnd(const verdict::Outcome& outcome, bool sequential) {
  constexpr char kWeakerMode[] =
      " (process_mode sequential: a weaker procedure, since the arms did not share the device side by side)";
  return {.verdict = outcome.verdict,
          .reason = outcome.reason,
          .detail = absl::StrCat(outcome.detail, sequential ? kWeakerMode : ""),
          .failure_cause = "",
          .non_inferior = outcome.non_inferior};
}

void EndJob(const JobEnd& end, JobChange* change) {
  v1::BenchmarkJob& job = change->job;
  job.set_state(v1::BenchmarkJob::DONE);
  job.set_verdict(end.verdict);
  job.set_reason(end.reason);
  job.set_detail(end.detail);
  job.set_failure_cause(end.failure_cause);
  job.set_non_inferior(end.non_inferior);
  job.set_end_time_unix_ms(absl::ToUnixMillis(absl::Now()));
  *change->events.emplace_back().mutable_job() = job;
}

}  // namespace keval::server
