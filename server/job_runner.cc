#include "server/job_runner.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <set>
#include <system_error>
#include <utility>

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/text.h"
#include "core/measure/clock_lock.h"
#include "server/clock_guard.h"
#include "server/job_end.h"
#include "server/job_execution.h"

namespace keval::server {
namespace {

constexpr std::chrono::milliseconds kPollInterval{200};

// A device's clock for the time of a job, and what the report says of it; "" for a CPU.
struct JobClock {
  std::unique_ptr<ClockGuard> guard;  // Outlives the lock.
  std::unique_ptr<measure::ClockLock> lock;
  std::string text;
};

// `check` ends the wait for others.
JobClock LockClock(const ClockPolicy& policy, const v1::DeviceInfo& device, const JobExecution::Check& check) {
  if (device.uuid().empty()) return {};
  if (policy.lock_mhz == 0) return {nullptr, nullptr, "not locked: not asked for"};
  const std::string owner = RandomHex128();
  auto guard = ClockGuard::Start(policy.guard_program, policy.record_folder, device.uuid(), owner);
  absl::Status status = guard.status();
  if (status.ok()) {
    const auto take = [&] {
      return measure::ClockLock::Take(device.uuid(), static_cast<unsigned>(policy.lock_mhz), policy.record_folder,
                                      owner);
    };
    const auto deadline = std::chrono::steady_clock::now() + policy.patience;
    auto lock = take();
    while (absl::IsFailedPrecondition(lock.status()) && std::chrono::steady_clock::now() < deadline && check().ok()) {
      std::this_thread::sleep_for(kPollInterval);
      lock = take();
    }
    if (lock.ok()) {
      return {*std::move(guard), *std::move(lock),
              absl::StrCat("locked to ", policy.lock_mhz, " MHz while the job ran")};
    }
    status = lock.status();
  }
  const std::string why(status.message());
  spdlog::warn("{}: the SM clock is not locked: {}", device.name(), why);
  return {nullptr, nullptr, absl::StrCat("not locked: ", policy.lock_mhz, " MHz were asked for, left as it is: ", why)};
}

}  // namespace

JobRunner::JobRunner(JobStore* store, CollectorFactory collectors, std::vector<BenchmarkDevice> devices,
                     v1::BuildInfo build, ClockPolicy clocks)
    : store_(store), collectors_(std::move(collectors)), build_(std::move(build)), clocks_(std::move(clocks)) {
  for (BenchmarkDevice& device : devices) {
    slots_.push_back(std::make_unique<Slot>());
    slots_.back()->device = std::move(device);
  }
}

JobRunner::~JobRunner() { Drain(); }

absl::Status JobRunner::Start() {
  if (!clocks_.record_folder.empty()) {
    if (const auto status = measure::RestoreClocks(clocks_.record_folder); !status.ok()) {
      spdlog::error("{}; the next start tries again", std::string(status.message()));
    }
  }
  for (const auto state : {v1::BenchmarkJob::RUNNING, v1::BenchmarkJob::QUEUED}) {
    const auto jobs = store_->JobsInState(state);
    if (!jobs.ok()) return jobs.status();
    for (const StoredJob& job : *jobs) TakeUp(job);
  }
  for (const auto& slot : slots_) {
    slot->collector = collectors_(slot->device.info);
    try {
      slot->thread = std::thread([this, raw = slot.get()] { Serve(raw); });
    } catch (const std::system_error& error) {
      return absl::UnavailableError(absl::StrCat("can't start a benchmark thread: ", error.what()));
    }
  }
  return absl::OkStatus();
}

void JobRunner::TakeUp(const StoredJob& stored) const {
  const v1::BenchmarkJob& job = stored.job;
  const std::string& device = job.spec().target().device();
  const bool served =
      std::any_of(slots_.begin(), slots_.end(), [&](const auto& slot) { return slot->device.info.name() == device; });
  if (served) {
    if (job.state() == v1::BenchmarkJob::RUNNING) {
      spdlog::info("{} is taken up again after {} rounds", job.name(), job.rounds_done());
    }
    return;
  }
  JobChange change{.job = job};
  EndJob({.verdict = "FAILED",
          .reason = "DEVICE_GONE",
          .detail = absl::StrCat("the server was restarted and has no device ", PrintableText(device, 64),
                                 " for benchmarks now; submit the job again where there is one"),
          .failure_cause = "infrastructure"},
         &change);
  const absl::Status status = store_->Apply(change);
  // Reads must be served from a full disk too; the next start tries again.
  spdlog::warn("{}: device {} runs no benchmarks here now; {}", job.name(), PrintableText(device, 64),
               status.ok() ? "ended as FAILED" : std::string(status.message()));
}

void JobRunner::Serve(Slot* slot) {
  const std::string& device = slot->device.info.name();
  std::set<std::string> begun;  // By this process: going on with one of them is no restart.
  while (!draining()) {
    const std::uint64_t seen = store_->commits();
    const auto next = store_->NextJob(device);
    if (!next.ok() || !next->has_value()) {
      store_->WaitForCommit(seen, std::chrono::steady_clock::now() + kPollInterval);
      continue;
    }
    const StoredJob& job = **next;
    const std::string name = job.job.name();
    const bool resumed = job.job.state() == v1::BenchmarkJob::RUNNING && begun.insert(name).second;
    begun.insert(name);
    const absl::Status status = Execute(slot, job, resumed);
    if (!status.ok() && !absl::IsCancelled(status) && !draining()) {
      spdlog::error("{} stands still: {}", name, std::string(status.message()));
      store_->WaitForCommit(store_->commits(), std::chrono::steady_clock::now() + kPollInterval);
    }
  }
}

absl::Status JobRunner::Execute(Slot* slot, const StoredJob& job, bool resumed) {
  const auto interrupted = std::make_shared<std::atomic<bool>>(false);
  {
    MutexLock lock(&mutex_);
    running_[job.job.name()] = interrupted;
  }
  const auto check = [this, interrupted]() -> absl::Status {
    if (interrupted->load()) return absl::CancelledError("the job was cancelled");
    if (draining()) return absl::UnavailableError("the server is draining");
    return absl::OkStatus();
  };
  const JobClock clock = LockClock(clocks_, slot->device.info, check);
  JobExecution execution({.store = store_,
                          .collector = slot->collector.get(),
                          .lease = slot->device.lease,
                          .device = slot->device.info,
                          .build = build_,
                          .clock_lock = clock.text,
                          .check = check,
                          .progress =
                              [this, name = job.job.name()](const v1::JobProgress& progress) {
                                MutexLock lock(&mutex_);
                                present_[name] = {++last_version_, progress};
                              }},
                         job);
  absl::Status status;
  try {
    status = execution.Run(resumed);
  } catch (const std::exception& error) {
    // No job may take the server with it, nor be taken up again for ever.
    status = FailOnException(job.job.name(), error.what());
  }
  if (clock.guard != nullptr && !clock.guard->Watches()) {
    spdlog::warn(
        "{}: the guard of its locked SM clock was ended by somebody; a kill of this server would have left it "
        "locked until the next start",
        slot->device.info.name());
  }
  {
    MutexLock lock(&mutex_);
    running_.erase(job.job.name());
    present_.erase(job.job.name());
  }
  if (!status.ok() && draining() && !interrupted->load()) MarkCleanStop(job.job.name());
  return status;
}

absl::Status JobRunner::FailOnException(const std::string& name, absl::string_view what) {
  spdlog::error("{}: an exception: {}", name, PrintableText(what));
  auto stored = store_->Get(name);
  if (!stored.ok()) return stored.status();
  JobChange change{.job = std::move(stored->job)};
  EndJob({.verdict = "FAILED",
          .reason = "HARNESS_EXCEPTION",
          .detail = "the server could not go on with this job; its log says why",
          .failure_cause = "harness"},
         &change);
  return store_->Apply(change);
}

void JobRunner::MarkCleanStop(const std::string& name) {
  auto stored = store_->Get(name);
  if (!stored.ok() || stored->job.state() != v1::BenchmarkJob::RUNNING) return;
  JobChange change{.job = std::move(stored->job)};
  change.stopped_clean = true;
  // Best effort: without it the next start counts as one after a crash.
  if (auto status = store_->Apply(change); !status.ok()) {
    spdlog::warn("{}: {}", name, std::string(status.message()));
  }
}

void JobRunner::Interrupt(absl::string_view job_name) {
  MutexLock lock(&mutex_);
  const auto found = running_.find(std::string(job_name));
  if (found != running_.end()) found->second->store(true);
}

std::optional<JobRunner::Present> JobRunner::ProgressOf(absl::string_view job_name) {
  MutexLock lock(&mutex_);
  const auto found = present_.find(std::string(job_name));
  return found == present_.end() ? std::nullopt : std::optional(found->second);
}

void JobRunner::StartDraining() { draining_.store(true); }

void JobRunner::Drain() {
  StartDraining();
  for (const auto& slot : slots_) {
    if (slot->thread.joinable()) slot->thread.join();
  }
}

}  // namespace keval::server
