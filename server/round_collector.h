// Collecting one round of a paired job with real worker processes: the seam between the job runner, which knows jobs
// and verdicts, and the workers, which know devices and timers. Tests of the job runner put a fake behind it.
#ifndef KEVAL_SERVER_ROUND_COLLECTOR_H_
#define KEVAL_SERVER_ROUND_COLLECTOR_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "core/verdict/samples.h"
#include "server/device_lease.h"

namespace keval::server {

// The operator's shape as a worker needs it.
struct WorkShape {
  std::int64_t num_tokens = 0;
  std::int64_t hidden_size = 0;
  std::int64_t vocab_size = 0;
  DType dtype = DType::kFloat32;
  bool bias = false;
  std::string autocast = "none";  // none, bfloat16, float16.
  std::int64_t chunk_elems = 0;   // 0: default.
};

struct SeriesRun {
  std::string series;
  verdict::Role role = verdict::Role::kPrimary;
  WorkShape shape;
  int quads = 8;
  int timed_repetitions = 5;
  int discarded_repetitions = 2;
};

// What is the same for every round of a job.
struct JobArms {
  std::string base_variant;
  std::string candidate_variant;
  std::string device;  // "cpu", "cuda:0".
  bool force_variant = false;
  int worker_threads = 1;  // On a CPU.
  double hang_timeout_seconds = 120;
  std::uint64_t seed = 0;
  // Of a calibration job, in ln units: positive slows base and its copy, negative the candidate; 0: nothing.
  double injected_effect = 0;
  bool sequential = false;  // An arm holds its tensors in its turn only.
  // Told, on the calling thread, which series' or diagnostic's turn it is, from 0. May be empty.
  std::function<void(const std::string& name, int number, int count)> on_turn;
};

// Why a round, pilot or check could not be collected.
struct WorkFailure {
  std::string cause;  // base, candidate, harness, device, infrastructure.
  std::string
      reason;  // CRASHED, OUT_OF_MEMORY, HUNG, ILLEGAL_ACCESS, WRONG_RESULT, FALLBACK, DEVICE_LOST, SPAWN_FAILED, …
  std::string detail;                    // One printable sentence.
  bool is_contract = false;              // WRONG_RESULT and FALLBACK: the job is CONTRACT_FAILED.
  std::vector<verdict::Sample> partial;  // What had been measured; goes to excluded.csv.
};

// Read at a block's edges; NaN where the device does not tell.
struct DeviceReading {
  double sm_clock_mhz = 0;
  double memory_clock_mhz = 0;
  double power_watts = 0;
  double temperature_celsius = 0;
  std::uint64_t throttle_reasons = 0;  // NVML's bits.
  int other_processes = 0;             // On the device, not ours; -1 unknown.
};
struct BlockRecord {
  std::string series;
  int quad = 0;
  int pos = 0;
  char arm = 'A';
  DeviceReading before;
  DeviceReading after;
  std::uint64_t reasons_between = 0;  // NVML's bits, of moments between the two.
};

struct DispatchRecord {
  std::string variant;
  std::string path;
  std::string reason;
  bool fallback = false;
};

// By series and round. Bytes are peak minus allocated just before the call.
struct SeriesEvidence {
  std::string series;
  std::int64_t base_peak_bytes = 0;
  std::int64_t candidate_peak_bytes = 0;
  DispatchRecord base_dispatch;
  DispatchRecord candidate_dispatch;
};

struct RoundData {
  std::vector<verdict::Sample> samples;  // Every series; `round` as asked for.
  std::vector<BlockRecord> blocks;       // In the order realised.
  std::vector<SeriesEvidence> evidence;
  double seconds = 0;         // Wall.
  double device_seconds = 0;  // While a lease was held.
  // Cores that processes other than ours kept busy meanwhile, on average; NaN unknown.
  double foreign_cpu_cores = std::numeric_limits<double>::quiet_NaN();
};

// What one worker takes of the device's memory.
struct WorkerBytes {
  double context = 0;  // With no tensors.
  double inputs = 0;
  double peak = 0;               // Further, in a call.
  bool context_assumed = false;  // Where the device doesn't tell.
};

// What of an arm's turns isn't timed.
struct TurnSeconds {
  double preparation = 0;  // Of an arm, until its first block can begin.
  double repetition = 0;   // All of one: fresh inputs, cache overwrite, call, verification.
};

struct PilotData {
  // By series, of base: the median of its calls, and how long it has the device for them.
  std::map<std::string, double> base_ns;
  std::map<std::string, TurnSeconds> turns;
  // The same of the candidate; none in a control, or where it is base.
  std::map<std::string, TurnSeconds> candidate_turns;
  // By series, the larger of what the two arms take.
  std::map<std::string, WorkerBytes> bytes;
  std::optional<double> free_bytes;  // Of the device's memory before any worker was there; nullopt: unknown.
};

// Bytes that went between the device and its memory, by its hardware counters.
struct DramCount {
  std::string note = "not counted";  // Why there are none; empty where there are.
  std::int64_t read_bytes = 0;
  std::int64_t written_bytes = 0;
};

// Counts by name, for one forward + backward call.
struct ProfileData {
  struct Arm {
    std::map<std::string, std::int64_t> ops;
    std::map<std::string, std::int64_t> kernels;    // Launches.
    std::map<std::string, std::int64_t> kernel_ns;  // All launches of a name together.
    std::string kernels_note;                       // Why there are none.
    DramCount dram;
  };
  std::map<std::string, std::pair<Arm, Arm>> by_series;  // Base, candidate.
};

// What of a call a diagnostic times.
enum class DiagnosticRegion : std::uint8_t { kForwardBackward, kBackward, kWeightGradient };
struct DiagnosticRun {
  std::string name;  // The series column of diagnostics.csv, e.g. "4096x2048x32768/bfloat16/bias/chunks=4".
  WorkShape shape;
  DiagnosticRegion region = DiagnosticRegion::kForwardBackward;
  int quads = 3;
  int timed_repetitions = 3;
  int discarded_repetitions = 1;
};
struct DiagnosticsData {
  std::vector<verdict::Sample> samples;       // Of whole runs, `series` being the run's name.
  std::map<std::string, std::string> absent;  // Run that failed to why, as a printable sentence.
};

struct ContractRowData {
  std::string id;
  std::string arm;
  std::string case_name;
  double measured = 0;
  double limit = 0;
  std::string status;  // pass, fail, not_applicable.
  std::string why;
};

template <typename T>
using Collected = std::variant<T, WorkFailure>;

// Returned statuses are the `check`'s alone (CANCELLED); everything that goes wrong in a worker is a WorkFailure. Every
// call ends with no worker process of its own left running. Thread-compatible: one call at a time for each object.
class RoundCollector {
 public:
  using Check = std::function<absl::Status()>;
  virtual ~RoundCollector() = default;

  // Base's time a call for every series, in a process of its own, and what a candidate's process takes beside it. No
  // lease is held while they start.
  virtual absl::StatusOr<Collected<PilotData>> Pilot(const JobArms& arms, const std::vector<SeriesRun>& series,
                                                     DeviceLease* lease, const Check& check) = 0;
  // One round: fresh processes that take turns, the lease held for a quad at a time. On a GPU there are three, base,
  // candidate and copy of base; on a CPU two pairs one after the other, base and candidate, then base and its copy for
  // the controls. With `arms.sequential` only the one whose turn it is holds tensors.
  virtual absl::StatusOr<Collected<RoundData>> Round(const JobArms& arms, const std::vector<SeriesRun>& series,
                                                     int round, DeviceLease* lease, const Check& check) = 0;
  // The correctness contract of the two variants on the job's device; `row` is called as each row is measured.
  virtual absl::StatusOr<Collected<std::vector<ContractRowData>>> Contract(
      const JobArms& arms, const std::function<void(const ContractRowData&)>& row, DeviceLease* lease,
      const Check& check) = 0;
  virtual absl::StatusOr<Collected<ProfileData>> Profile(const JobArms& arms, const std::vector<SeriesRun>& series,
                                                         DeviceLease* lease, const Check& check) = 0;
  // A run that fails (out of memory with one chunk, say) is absent, and the others go on.
  virtual absl::StatusOr<Collected<DiagnosticsData>> Diagnose(const JobArms& arms,
                                                              const std::vector<DiagnosticRun>& runs,
                                                              DeviceLease* lease, const Check& check) = 0;
  // CPU and GPU model, UUID, driver, CUDA, LibTorch, governor, threads, allocator, …: name to text, for the report.
  virtual absl::StatusOr<Collected<std::map<std::string, std::string>>> Environment(const JobArms& arms,
                                                                                    const Check& check) = 0;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_ROUND_COLLECTOR_H_
