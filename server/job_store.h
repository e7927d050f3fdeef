// Benchmark jobs on disk: one SQLite file in the data directory, everything that a job must not lose.
#ifndef KEVAL_SERVER_JOB_STORE_H_
#define KEVAL_SERVER_JOB_STORE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "keval/v1/benchmark.pb.h"

namespace SQLite {
class Database;
}

namespace keval::server {

struct StoredJob {
  std::string principal;
  v1::BenchmarkJob job;
  int idle_restarts = 0;       // Restarts in succession that finished no round.
  bool stopped_clean = false;  // The server drained while the job ran: its next start is no crash's.
};

struct StoredRound {
  int round = 0;         // From 0.
  std::string samples;   // CSV as verdict::FormatSamples writes it.
  std::string evidence;  // JSON: blocks, peaks, dispatch, seconds.
};

// An attempt that was lost.
struct StoredLoss {
  std::string phase;  // contract, pilot, round, profile, diagnose.
  int round = -1;     // From 0; -1 outside the phase `round`.
  std::string cause;
  std::string reason;
  std::string detail;
  std::string samples;  // CSV; empty: nothing had been measured.
};

// L-hat of one series over six rounds of a past A/A job, for default margins.
struct CalibrationPoint {
  std::string key;  // Of device and shape.
  double mean = 0;
};

// One transaction on a job that has not ended.
struct JobChange {
  v1::BenchmarkJob job;               // The job from then on.
  std::optional<int> idle_restarts;   // Absent: as it was.
  std::optional<bool> stopped_clean;  // Absent: as it was.
  std::vector<v1::JobEvent> events;   // The store numbers them and sets their time where it is 0.
  std::optional<StoredRound> round;
  std::optional<StoredLoss> loss;
  std::vector<std::pair<std::string, std::string>> documents;  // Name to text; replaces one of that name.
  std::vector<CalibrationPoint> calibration;
};

// Thread-safe: one connection behind a lock. WAL with synchronous=FULL, so what a call acknowledged survives kill -9
// and a power cut. A write that fails (disk full, I/O error) is UNAVAILABLE "job store can't be written", leaves
// nothing behind, and later calls work again by themselves; reads go on meanwhile. Other clients' data and paths stay
// out of messages, except Open's, which the server's operator reads.
class JobStore {
 public:
  // Creates `data_dir` (mode 0700) and the file when missing. FAILED_PRECONDITION: another process holds the directory,
  // or the file has a newer schema; DATA_LOSS: the file is damaged or isn't ours; UNAVAILABLE: can't be created.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(const std::string& data_dir);
  ~JobStore();
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  // Adds a job in state QUEUED with its first event. `request_digest` is what the principal's request_id must mean when
  // it comes again: then the stored job is returned and nothing is added, or INVALID_ARGUMENT (request_id) where it
  // meant something else. RESOURCE_EXHAUSTED with a retry delay when `max_queued` jobs are queued already.
  absl::StatusOr<v1::BenchmarkJob> Create(absl::string_view principal, const v1::BenchmarkJob& job,
                                          absl::string_view request_digest, int max_queued);
  // The job that an earlier Create with this request_id made, or nullopt; INVALID_ARGUMENT as Create.
  absl::StatusOr<std::optional<v1::BenchmarkJob>> FindRequest(absl::string_view principal, absl::string_view request_id,
                                                              absl::string_view request_digest);

  // NOT_FOUND for a job that isn't there, `principal` notwithstanding: its owner is the caller's business to check.
  absl::StatusOr<StoredJob> Get(absl::string_view name);
  // Newest first, at most `limit`, those created before position `before` (0: all) and with `request_digest` (empty:
  // any); each with its position.
  absl::StatusOr<std::vector<std::pair<std::int64_t, v1::BenchmarkJob>>> List(absl::string_view principal,
                                                                              std::int64_t before, int limit,
                                                                              absl::string_view request_digest = "");
  // The RUNNING job of this device, else its oldest QUEUED one.
  absl::StatusOr<std::optional<StoredJob>> NextJob(absl::string_view device);
  absl::StatusOr<std::vector<StoredJob>> JobsInState(v1::BenchmarkJob::State state);
  absl::StatusOr<int> CountInState(v1::BenchmarkJob::State state);

  // FAILED_PRECONDITION when the job has ended (cancelled meanwhile, say): nothing is written.
  absl::Status Apply(const JobChange& change);
  // Ends a job that has not ended; returns it as it is then.
  absl::StatusOr<v1::BenchmarkJob> Cancel(absl::string_view name);

  // Names of jobs that have ended, in the order of their creation: all that ended before `ended_before_ms`, and the
  // oldest of the others where there are more than `max_jobs` jobs in all (0: no limit).
  absl::StatusOr<std::vector<std::string>> ExpiredJobs(std::int64_t ended_before_ms, std::int64_t max_jobs);
  // Deletes these with all they left but their calibration, in one transaction; one that has not ended stays.
  absl::Status DeleteEnded(absl::Span<const std::string> names);

  absl::StatusOr<std::vector<v1::JobEvent>> EventsAfter(absl::string_view name, std::int64_t sequence, int limit);
  absl::StatusOr<std::vector<StoredRound>> Rounds(absl::string_view name);
  absl::StatusOr<std::vector<StoredLoss>> Losses(absl::string_view name);
  // Empty text where there is none.
  absl::StatusOr<std::string> Document(absl::string_view name, absl::string_view document);
  absl::StatusOr<std::vector<double>> Calibration(absl::string_view key);

  // Counts the transactions so far; WaitForCommit returns when there was one after `seen`, or at the deadline.
  std::uint64_t commits();
  void WaitForCommit(std::uint64_t seen, std::chrono::steady_clock::time_point deadline);

  // For tests: the file stops growing here, as on a full disk. 0: no limit.
  absl::Status LimitPagesForTest(int pages);

 private:
  JobStore(int lock_fd, std::unique_ptr<SQLite::Database> database);

  // May throw SQLite's exceptions.
  absl::StatusOr<std::optional<v1::BenchmarkJob>> FindRequestLocked(absl::string_view principal,
                                                                    absl::string_view request_id,
                                                                    absl::string_view request_digest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountCommit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int lock_fd_;
  Mutex mutex_;
  CondVar committed_;
  const std::unique_ptr<SQLite::Database> database_ ABSL_PT_GUARDED_BY(mutex_);
  std::uint64_t commits_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_STORE_H_
