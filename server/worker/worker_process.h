// A keval-worker as its server sees it.
#ifndef KEVAL_SERVER_WORKER_WORKER_PROCESS_H_
#define KEVAL_SERVER_WORKER_WORKER_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/worker/message_channel.h"
#include "server/worker/running_page.h"
#include "server/worker/worker.pb.h"

namespace keval::worker {

// What went wrong in a worker, and who is to blame: the arm that it ran, base that it ran to compare with, or one of
// the others.
struct WorkerFault {
  enum class Blame : std::uint8_t { kArm, kBase, kHarness, kDevice, kInfrastructure };
  Blame blame = Blame::kArm;
  std::string reason;  // CRASHED, HUNG, OUT_OF_MEMORY, ILLEGAL_ACCESS, WRONG_RESULT, …
  std::string detail;  // Printable; reads after "the worker ".
  bool is_contract = false;
};

// The whole machine's.
inline constexpr char kMachineOomCounters[] = "/proc/vmstat";

// How often the kernel has killed for want of memory since boot, by a file with a line "oom_kill N"; nullopt where it
// doesn't tell.
std::optional<std::int64_t> KernelOomKills(const std::string& counters);

// This process and all of its workers that haven't been reaped, whoever has started them: those of other jobs, devices
// and contract checks too. Thread-safe.
std::vector<int> OwnProcessIds();

// Owns one child process in a process group of its own; the destructor kills what is left of the group and reaps the
// child, so none is left behind. The child inherits its control socket, a page of shared memory, a pipe as stdout and
// stderr, and nothing else; its environment is ours without what would change allocators or precision. Not thread-safe;
// destroyed on the thread that spawned it, which outlives the child (the child dies with that thread). Crashes, hangs
// and want of memory are blamed on whose code the child said that it ran (RunningPage).
class WorkerProcess {
 public:
  using Check = std::function<absl::Status()>;
  using Answer = std::variant<Reply, WorkerFault>;

  // `threads`: of the child's OpenMP pools. `oom_counters`: KernelOomKills'; a file that tells nothing when the child
  // is started tells nothing later. UNAVAILABLE where it can't be started.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Spawn(const std::string& program, int threads,
                                                              std::string oom_counters = kMachineOomCounters);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  pid_t pid() const { return pid_; }

  // A worker that has died in the meantime shows in Receive.
  void Send(const Request& request) const;

  // The next reply, or the end of the child whatever it left behind, waited for at most `timeout` (then the worker is
  // killed: HUNG). `check` is asked about every 50 ms; its error ends the wait and is returned. After a fault the
  // process is dead and reaped.
  absl::StatusOr<Answer> Receive(std::chrono::milliseconds timeout, const Check& check);

 private:
  WorkerProcess(pid_t pid, int control, int output, RunningPage running, std::string oom_counters);

  void DrainOutput();
  // Whether the child is dead, reaped or not.
  bool HasEnded() const;
  // Waits for the end of a child that has died or whose channel has closed; says how it ended.
  WorkerFault Bury();
  void Kill();
  WorkerFault FaultOf(const Failure& failure) const;
  // Of whose code ran.
  WorkerFault Blamed(std::string reason, const std::string& detail) const;
  // "; it last wrote: …", or nothing.
  std::string LastWords() const;

  pid_t pid_;
  int control_;
  int output_;
  bool reaped_ = false;
  bool output_closed_ = false;
  int wait_status_ = 0;
  RunningPage running_;
  std::string oom_counters_;
  std::optional<std::int64_t> oom_kills_before_;
  std::string output_tail_;
  MessageDecoder decoder_;
};

}  // namespace keval::worker

#endif  // KEVAL_SERVER_WORKER_WORKER_PROCESS_H_
