#include "server/executor.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"

namespace keval::server {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kCheckInterval{10};

std::int64_t NanosSince(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

absl::Status DeviceLost(const std::string& device) {
  return absl::UnavailableError(absl::StrCat("device ", device, " was lost; the server restarts"));
}

}  // namespace

// Lives in Run's frame, which stays until the task is taken out of the queue or done.
struct Executor::Task {
  Task(const linear_logp::ContinueCheck& check_in, Needs needs_in, Work work_in)
      : check(check_in), needs(needs_in), work(work_in) {}

  enum class State : std::uint8_t { kQueued, kRunning, kDone };
  const linear_logp::ContinueCheck& check;
  const Needs needs;
  const Work work;
  const Clock::time_point admitted = Clock::now();
  State state = State::kQueued;  // Guarded by Executor::mutex_, as `status` and `timing` are until kDone.
  absl::Status status;
  Timing timing;
  CondVar changed;
};

absl::StatusOr<std::unique_ptr<Executor>> Executor::Start(Options options, const BackendFactory& factory,
                                                          DeviceLease* lease) {
  auto executor = absl::WrapUnique(new Executor(std::move(options), lease));
  executor->thread_ = std::thread([e = executor.get(), &factory] { e->Serve(factory); });
  absl::Status status;
  {
    MutexLock lock(&executor->mutex_);
    while (!executor->started_) executor->changed_.Wait(&executor->mutex_);
    status = executor->start_status_;
  }
  if (!status.ok()) return status;
  return executor;
}

Executor::Executor(Options options, DeviceLease* lease) : options_(std::move(options)), lease_(lease) {}

Executor::~Executor() { Stop(); }

absl::Status Executor::Refusal() const {
  if (!healthy_) return DeviceLost(options_.device);
  return absl::UnavailableError("the server is draining");
}

absl::StatusOr<Executor::Timing> Executor::Run(const linear_logp::ContinueCheck& check, Needs needs, Work work) {
  Task task(check, needs, work);
  MutexLock lock(&mutex_);
  if (stopping_ || !healthy_) return Refusal();
  if (queue_.size() >= static_cast<std::size_t>(options_.max_queued)) {
    return WithRetryDelayMs(absl::ResourceExhaustedError(absl::StrCat("queue of device ", options_.device, ": ",
                                                                      options_.max_queued, " requests wait already")),
                            options_.retry_delay_ms);
  }
  queue_.push_back(&task);
  changed_.Signal();
  while (task.state == Task::State::kQueued) {
    task.changed.WaitUntil(&mutex_, Clock::now() + kCheckInterval);
    if (task.state != Task::State::kQueued) break;
    mutex_.Unlock();  // `check` may take locks of its own.
    absl::Status status = check();
    mutex_.Lock();
    if (!status.ok() && task.state == Task::State::kQueued) {
      queue_.remove(&task);
      return status;
    }
  }
  while (task.state != Task::State::kDone) task.changed.Wait(&mutex_);
  if (!task.status.ok()) return task.status;
  return task.timing;
}

void Executor::Serve(const BackendFactory& factory) {
  absl::StatusOr<std::unique_ptr<GradientBackend>> backend = factory();
  {
    MutexLock lock(&mutex_);
    started_ = true;
    start_status_ = backend.status();
    changed_.SignalAll();
  }
  if (!backend.ok()) return;
  while (true) {
    DestroyDiscarded();
    ReleaseCacheIfAsked(**backend);
    Task* task = nullptr;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !stopping_ && !release_asked_ && discarded_.empty()) changed_.Wait(&mutex_);
      if (queue_.empty() && stopping_) return;
      if (queue_.empty()) continue;
      task = queue_.front();
      queue_.pop_front();
      if (stopping_ || !healthy_) {
        task->status = Refusal();
        task->state = Task::State::kDone;
        task->changed.SignalAll();
        continue;
      }
      task->state = Task::State::kRunning;
    }
    RunTask(**backend, task);
  }
}

void Executor::RunTask(GradientBackend& backend, Task* task) {
  const linear_logp::ContinueCheck check = [this, task, &backend]() -> absl::Status {
    ReleaseCacheIfAsked(backend);  // While this request waits for a lease that workers hold.
    {
      MutexLock lock(&mutex_);
      if (stopping_) return Refusal();
    }
    return task->check();
  };
  absl::Status status = check();  // Nobody may be waiting any more.
  Timing timing;
  if (status.ok()) {
    DeviceLease::Grant grant;
    if (task->needs == Needs::kDevice) {
      absl::StatusOr<DeviceLease::Grant> acquired = lease_->Acquire(check);
      status = acquired.status();
      if (acquired.ok()) grant = *std::move(acquired);
    }
    timing.queue_ns = NanosSince(task->admitted);
    if (status.ok()) {
      {
        MutexLock lock(&mutex_);
        has_cache_ = true;  // Freeing counts too: what a chunked gradient held goes to the allocator.
      }
      const Clock::time_point start = Clock::now();
      status = task->work(backend, check);
      timing.compute_ns = NanosSince(start);
    }
  }
  const bool lost = !backend.Healthy();
  bool tell = false;
  {
    MutexLock lock(&mutex_);
    if (lost) {
      tell = std::exchange(healthy_, false);
      released_.SignalAll();
      // Whatever the backend called it, to the caller this is the device's loss: try elsewhere or later.
      if (!status.ok()) status = DeviceLost(options_.device);
    }
    task->status = std::move(status);
    task->timing = timing;
    task->state = Task::State::kDone;
    task->changed.SignalAll();  // Under the lock: the task's frame goes as soon as its owner sees kDone.
  }
  if (tell && options_.on_device_lost) options_.on_device_lost();
}

void Executor::ReleaseCache() {
  MutexLock lock(&mutex_);
  if (!has_cache_ && discarded_.empty()) return;
  release_asked_ = true;
  changed_.SignalAll();
  while (release_asked_ && !stopping_ && healthy_) released_.Wait(&mutex_);
}

void Executor::Discard(std::shared_ptr<const void> object) {
  MutexLock lock(&mutex_);
  discarded_.push_back(std::move(object));
  changed_.Signal();
}

void Executor::DestroyDiscarded() {
  std::vector<std::shared_ptr<const void>> discarded;  // Destroyed after the lock.
  MutexLock lock(&mutex_);
  discarded.swap(discarded_);
  if (!discarded.empty()) has_cache_ = true;  // What they held goes to the allocator.
}

void Executor::ReleaseCacheIfAsked(GradientBackend& backend) {
  {
    MutexLock lock(&mutex_);
    if (!release_asked_) return;
  }
  DestroyDiscarded();
  backend.ReleaseCache();
  MutexLock lock(&mutex_);
  has_cache_ = false;
  release_asked_ = false;
  released_.SignalAll();
}

void Executor::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
    released_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

bool Executor::healthy() const {
  MutexLock lock(&mutex_);
  return healthy_;
}

int Executor::queued() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(queue_.size());
}

}  // namespace keval::server
