// The workers of one collecting call, each in its seat, and the device's lease between them.
#ifndef KEVAL_SERVER_WORKER_WORKER_CREW_H_
#define KEVAL_SERVER_WORKER_WORKER_CREW_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/device_lease.h"
#include "server/round_collector.h"
#include "server/worker/round_crews.h"
#include "server/worker/worker_process.h"

namespace keval::worker {

// Thread-compatible; lives within one call of the collector, whose references it keeps. The end of it is the end of its
// processes.
//
// A call that isn't OK ends the collecting: either `check` spoke (Failure is nullopt), or a worker failed and Failure
// says how.
class WorkerCrew {
 public:
  struct Options {
    std::string program;
    std::string oom_counters = kMachineOomCounters;  // WorkerProcess::Spawn's.
    std::chrono::milliseconds start_timeout{120000};
  };
  WorkerCrew(Options options, const server::JobArms& arms, server::DeviceLease* lease,
             const server::RoundCollector::Check& check);

  // Starts a process for each seat, in that order, and waits until all are ready. Where the device is a CPU all of them
  // run on the same few of the host's CPUs, as many as a worker has threads, chosen by `draw`: they take turns, and
  // what else goes on where they run hits them alike.
  absl::Status Start(const std::vector<Seat>& seats, std::uint64_t draw = 0);

  // Sends and waits for the one reply. `limit`: of silence.
  absl::StatusOr<Reply> Ask(Seat seat, const Request& request, std::chrono::milliseconds limit);
  void Send(Seat seat, const Request& request);
  absl::StatusOr<Reply> Next(Seat seat, std::chrono::milliseconds limit);

  // The device is ours while the grant lives; null without a lease. Time held counts as device time.
  class Turn {
   public:
    Turn(WorkerCrew* crew, server::DeviceLease::Grant grant)
        : crew_(crew), grant_(std::move(grant)), begin_(std::chrono::steady_clock::now()) {}
    Turn(Turn&& other) noexcept
        : crew_(std::exchange(other.crew_, nullptr)), grant_(std::move(other.grant_)), begin_(other.begin_) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn();

   private:
    WorkerCrew* crew_;
    server::DeviceLease::Grant grant_;
    std::chrono::steady_clock::time_point begin_;
  };
  absl::StatusOr<Turn> TakeTurn();

  // A fault of our own making, e.g. a reply of the wrong kind.
  absl::Status FailAsHarness(Seat seat, const std::string& detail);

  std::chrono::milliseconds hang_timeout() const { return hang_timeout_; }
  double device_seconds() const { return device_seconds_; }
  // Of the crew and of this process.
  std::vector<int> process_ids() const;
  const std::string& VariantOf(Seat seat) const;
  const std::optional<server::WorkFailure>& failure() const { return failure_; }

  // What a collecting call returns: the value, the failure, or what `check` said.
  template <typename T>
  absl::StatusOr<server::Collected<T>> Finish(const absl::Status& status, T value) const {
    if (status.ok()) {
      return server::Collected<T>(std::move(value));
    }
    if (failure_.has_value()) {
      return server::Collected<T>(*failure_);
    }
    return status;
  }

 private:
  absl::Status Fail(Seat seat, const WorkerFault& fault);
  WorkerProcess& Worker(Seat seat) { return *workers_[static_cast<std::size_t>(seat)]; }

  const Options options_;
  const server::JobArms& arms_;
  server::DeviceLease* const lease_;
  const server::RoundCollector::Check& check_;
  const std::chrono::milliseconds hang_timeout_;
  double device_seconds_ = 0;
  std::optional<server::WorkFailure> failure_;
  std::array<std::unique_ptr<WorkerProcess>, 3> workers_;
};

}  // namespace keval::worker

#endif  // KEVAL_SERVER_WORKER_WORKER_CREW_H_
