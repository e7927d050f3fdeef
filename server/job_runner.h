// Runs benchmark jobs: a thread for each device takes its jobs from the store, one after the other.
#ifndef KEVAL_SERVER_JOB_RUNNER_H_
#define KEVAL_SERVER_JOB_RUNNER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "keval/v1/benchmark.pb.h"
#include "keval/v1/server_info.pb.h"
#include "server/device_lease.h"
#include "server/job_store.h"
#include "server/round_collector.h"

namespace keval::server {

struct BenchmarkDevice {
  v1::DeviceInfo info;
  DeviceLease* lease = nullptr;
};

// Whether a GPU's SM clock is locked while a job runs on it.
struct ClockPolicy {
  int lock_mhz = 0;           // 0: never, the default. Shared devices are left as they are.
  std::string record_folder;  // Where a lock is written down, so that it is undone after a kill.
  std::string guard_program;  // ClockGuard::Start's.
  // How long others are awaited who use the device: a killed server's workers take a moment to end.
  std::chrono::milliseconds patience{10000};
};

using CollectorFactory = std::function<std::unique_ptr<RoundCollector>(const v1::DeviceInfo& device)>;

// The store is the queue: the runner itself holds nothing that a kill could lose. Thread-safe; does not own `store` or
// the leases, which must outlive it.
class JobRunner {
 public:
  // `build` goes into the jobs' identity.
  JobRunner(JobStore* store, CollectorFactory collectors, std::vector<BenchmarkDevice> devices, v1::BuildInfo build,
            ClockPolicy clocks = {});
  ~JobRunner();  // Drains.
  JobRunner(const JobRunner&) = delete;
  JobRunner& operator=(const JobRunner&) = delete;

  // Gives back clocks that a killed process left locked, then starts the threads; jobs that were running are taken up
  // again, and those of a device that is gone end FAILED. Call once. UNAVAILABLE: the store can't be read, or no thread
  // can be started.
  absl::Status Start();

  // A running job stops within a block; its cancellation is in the store already.
  void Interrupt(absl::string_view job_name);

  // What a running job does at the moment, and a number that changes with it; nullopt where it doesn't run here.
  struct Present {
    std::uint64_t version = 0;
    v1::JobProgress progress;
  };
  std::optional<Present> ProgressOf(absl::string_view job_name);

  // Stops after the present block and joins the threads; running jobs stay RUNNING in the store, to be resumed from
  // their last finished round. Watches end with UNAVAILABLE from the first moment. Idempotent.
  void Drain();
  // The first half of Drain, without waiting: new jobs are refused, Watches end.
  void StartDraining();
  bool draining() const { return draining_.load(); }

 private:
  struct Slot {
    BenchmarkDevice device;
    std::unique_ptr<RoundCollector> collector;
    std::thread thread;
  };

  // Tells of a job that is taken up again, and ends one whose device runs no benchmarks here any more: nobody else
  // would.
  void TakeUp(const StoredJob& stored) const;
  void Serve(Slot* slot);
  // Runs `job` until it ends or has to stop.
  absl::Status Execute(Slot* slot, const StoredJob& job, bool resumed);
  absl::Status FailOnException(const std::string& name, absl::string_view what);
  void MarkCleanStop(const std::string& name);

  JobStore* const store_;
  const CollectorFactory collectors_;
  const v1::BuildInfo build_;
  const ClockPolicy clocks_;
  std::atomic<bool> draining_{false};
  std::vector<std::unique_ptr<Slot>> slots_;  // Fixed by Start.
  Mutex mutex_;
  // Set to stop a job, by its name.
  std::map<std::string, std::shared_ptr<std::atomic<bool>>> running_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Present> present_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_version_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_RUNNER_H_
