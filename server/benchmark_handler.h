// BenchmarkService without its transport: requests and the caller's principal in, statuses and messages out.
#ifndef KEVAL_SERVER_BENCHMARK_HANDLER_H_
#define KEVAL_SERVER_BENCHMARK_HANDLER_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "keval/v1/benchmark.pb.h"
#include "server/job_runner.h"
#include "server/job_spec.h"
#include "server/job_store.h"

namespace keval::server {

// Error codes are those of benchmark.proto. Thread-safe; does not own `store` and `runner`, which must outlive it.
class BenchmarkHandler {
 public:
  // Non-OK when the caller has gone, its deadline has passed, or the server wants the call to end; asked about every
  // 50 ms and its status returned.
  using Check = std::function<absl::Status()>;

  BenchmarkHandler(JobStore* store, JobRunner* runner, SpecContext context);

  absl::StatusOr<v1::BenchmarkJob> Create(absl::string_view principal, const v1::CreateJobRequest& request);
  absl::StatusOr<v1::BenchmarkJob> Get(absl::string_view principal, const v1::GetJobRequest& request);
  absl::StatusOr<v1::ListJobsResponse> List(absl::string_view principal, const v1::ListJobsRequest& request);
  // `send` returns false when the stream has broken: CANCELLED. UNAVAILABLE once the runner drains.
  absl::Status Watch(absl::string_view principal, const v1::WatchJobRequest& request,
                     const std::function<bool(const v1::JobEvent&)>& send, const Check& check);
  absl::StatusOr<v1::BenchmarkJob> Cancel(absl::string_view principal, const v1::CancelJobRequest& request);
  absl::Status GetReport(absl::string_view principal, const v1::GetReportRequest& request,
                         const std::function<bool(const v1::GetReportResponse&)>& send);

 private:
  // NOT_FOUND for a job that is unknown or someone else's.
  absl::StatusOr<StoredJob> OwnJob(absl::string_view principal, absl::string_view name) const;
  // What the job does at the moment, unless it was sent already (`seen`); false when the stream has broken.
  bool SendProgress(absl::string_view name, const std::function<bool(const v1::JobEvent&)>& send,
                    std::uint64_t* seen) const;

  JobStore* const store_;
  JobRunner* const runner_;
  const SpecContext context_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_BENCHMARK_HANDLER_H_
