// How a job ends.
#ifndef KEVAL_SERVER_JOB_END_H_
#define KEVAL_SERVER_JOB_END_H_

#include <string>

#include "core/verdict/verdict.h"
#include "keval/v1/benchmark.pb.h"
#include "server/job_store.h"

namespace keval::server {

// By the names of BenchmarkJob.
struct JobEnd {
  std::string verdict;
  std::string reason;
  std::string detail;
  std::string failure_cause;
  bool non_inferior = false;
};

// As its samples decide. The text of a job run sequentially names the procedure as the weaker one that it is.
JobEnd JudgedEnd(const verdict::Outcome& outcome, bool sequential);

// Makes `change` the job's last: state DONE with what `end` says, now, and the event that tells of it.
void EndJob(const JobEnd& end, JobChange* change);

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_END_H_
