// RoundCollector with real processes: see round_collector.h for what each call promises.
#ifndef KEVAL_SERVER_WORKER_ROUND_COLLECTOR_H_
#define KEVAL_SERVER_WORKER_ROUND_COLLECTOR_H_

#include <functional>
#include <string>
#include <vector>

#include "server/round_collector.h"

namespace keval::server {

// Owner: one job runner thread, which makes every call; workers live within a call and die with that thread. Failures
// are blamed on the arm whose process showed them ("base" for its copy too), on the "harness" (could not be started, or
// broke the protocol), on the "device" (lost), or on "infrastructure" (killed from outside).
class WorkerRoundCollector : public RoundCollector {
 public:
  struct Options {
    std::string worker_program;                 // Empty: keval-worker beside the running program.
    std::string oom_counters = "/proc/vmstat";  // The file in which the kernel counts kills as "oom_kill N".
    // Of a process, CUDA context included; apart from JobArms::hang_timeout_seconds, which bounds a block.
    double start_timeout_seconds = 120;
  };

  WorkerRoundCollector() : WorkerRoundCollector(Options()) {}
  explicit WorkerRoundCollector(Options options);

  absl::StatusOr<Collected<PilotData>> Pilot(const JobArms& arms, const std::vector<SeriesRun>& series,
                                             DeviceLease* lease, const Check& check) override;
  absl::StatusOr<Collected<RoundData>> Round(const JobArms& arms, const std::vector<SeriesRun>& series, int round,
                                             DeviceLease* lease, const Check& check) override;
  absl::StatusOr<Collected<std::vector<ContractRowData>>> Contract(
      const JobArms& arms, const std::function<void(const ContractRowData&)>& row, DeviceLease* lease,
      const Check& check) override;
  absl::StatusOr<Collected<ProfileData>> Profile(const JobArms& arms, const std::vector<SeriesRun>& series,
                                                 DeviceLease* lease, const Check& check) override;
  absl::StatusOr<Collected<DiagnosticsData>> Diagnose(const JobArms& arms, const std::vector<DiagnosticRun>& runs,
                                                      DeviceLease* lease, const Check& check) override;
  absl::StatusOr<Collected<std::map<std::string, std::string>>> Environment(const JobArms& arms,
                                                                            const Check& check) override;

 private:
  // Fills in the arms' bytes; what fails in a worker is their note. The status is the `check`'s alone.
  absl::Status CountDram(const JobArms& arms, const std::vector<SeriesRun>& series, DeviceLease* lease,
                         const Check& check, ProfileData* data) const;

  Options options_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_WORKER_ROUND_COLLECTOR_H_
