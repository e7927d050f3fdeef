// One benchmark job from where the store has it to its end: contract, pilot and plan, rounds with looks, profile and
// diagnostics. Every step that is finished is durable before the next begins, so another process can go on from there.
#ifndef KEVAL_SERVER_JOB_EXECUTION_H_
#define KEVAL_SERVER_JOB_EXECUTION_H_

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/verdict/samples.h"
#include "core/verdict/verdict.h"
#include "keval/v1/benchmark.pb.h"
#include "keval/v1/server_info.pb.h"
#include "server/device_lease.h"
#include "server/job_end.h"
#include "server/job_evidence.h"
#include "server/job_store.h"
#include "server/round_collector.h"

namespace keval::server {

// Lives on one thread for one run; owns nothing of what it is given.
class JobExecution {
 public:
  // Asked all the while; its non-OK status stops the run within a block and leaves the job as the store has it.
  using Check = std::function<absl::Status()>;

  struct Surroundings {
    JobStore* store = nullptr;
    RoundCollector* collector = nullptr;
    DeviceLease* lease = nullptr;
    v1::DeviceInfo device;
    v1::BuildInfo build;
    std::string clock_lock;  // What became of the device's clock, for the report; empty for a CPU.
    Check check;
    // Told what the job does at the moment; on the thread of Run. May be empty.
    std::function<void(const v1::JobProgress&)> progress;
  };

  JobExecution(Surroundings surroundings, StoredJob job);

  // A job that was running is taken up again: counts the restart, or ends it where too many finished no round.
  // OK: the job has ended. Otherwise what `check` answered, CANCELLED where the job was ended by somebody else, or
  // UNAVAILABLE where the store can't be read.
  absl::Status Run(bool resumed);

 private:
  absl::Status Load();
  absl::Status Begin(bool resumed);
  absl::Status RecordEnvironment();
  absl::Status CheckContract();
  absl::Status MakePlan();
  absl::Status CollectRounds();
  absl::Status CollectRound(int round);
  absl::Status CommitRound(int round, const RoundData& data);
  absl::Status Profile();
  absl::Status Diagnose();

  // What `data` lacks to be a round of this plan, as a sentence; empty when it is one.
  std::string ProblemWith(int round, const RoundData& data) const;
  // Non-empty: which arm fell back although the spec forbids it.
  std::string ForbiddenFallback(const RoundData& data) const;

  verdict::Evidence MemoryEvidence() const;

  // The decision table at the present number of rounds, when that is a look. Sets outcome_ when the job is decided, and
  // adds the look to `change`.
  absl::Status Judge(JobChange* change);

  // A phase's work was lost: ends the job, or records the loss so that the work is tried again.
  absl::Status Lose(absl::string_view phase, int round, const WorkFailure& failure);
  // A loss in a phase that never decides.
  absl::Status NoteLoss(absl::string_view phase, const WorkFailure& failure);

  absl::Status Finish(const JobEnd& end, JobChange change);
  absl::Status FinishWithOutcome();
  // Rounds have used so much more of the device than the spec allows that the job ends, undecided.
  absl::Status FinishOverBudget(double used_seconds);

  // Says that a phase has begun, or which series' turn it is in it.
  void TellProgress(absl::string_view phase, int round);

  // Waits so long. What `check` answers where it stops the run meanwhile.
  absl::Status Pause(std::chrono::milliseconds length) const;

  JobChange NewChange() const { return JobChange{.job = job_}; }
  // Writes `change` and takes its job over. Waits and tries again while the store can't be written.
  absl::Status Commit(JobChange change);

  const Surroundings at_;
  v1::BenchmarkJob job_;
  int idle_restarts_;
  bool stopped_clean_;
  JobArms arms_;
  v1::JobProgress progress_;
  bool ended_ = false;
  std::vector<StoredLoss> losses_;
  std::vector<verdict::Sample> samples_;
  std::vector<RoundEvidence> evidence_;
  std::optional<verdict::Outcome> outcome_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_EXECUTION_H_
