// How long jobs that have ended are kept.
#ifndef KEVAL_SERVER_JOB_RETENTION_H_
#define KEVAL_SERVER_JOB_RETENTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/job_store.h"

namespace keval::server {

// Owner: Kevald, from one thread. Does not own the store, which must outlive it.
class JobRetention {
 public:
  struct Limits {
    std::int64_t days = 0;      // Since a job's end; 0: kept however old.
    std::int64_t max_jobs = 0;  // Of all states; 0: any number.
  };

  JobRetention(JobStore* store, Limits limits) : store_(store), limits_(limits) {}

  // From time to time: at the first call and then once a day looks for what has expired, and deletes a few jobs a call,
  // so that nobody waits long for the store. What can't be read or deleted is tried again after an hour.
  void Tidy(absl::Time now);

 private:
  JobStore* const store_;
  const Limits limits_;
  absl::Time next_look_ = absl::InfinitePast();
  std::vector<std::string> expired_;  // Still to be deleted.
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_RETENTION_H_
