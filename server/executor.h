// The one thread that uses a device for gradients, and the bounded queue before it.
#ifndef KEVAL_SERVER_EXECUTOR_H_
#define KEVAL_SERVER_EXECUTOR_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/device_lease.h"
#include "server/gradient_backend.h"

namespace keval::server {

// Owns the backend; its thread makes every call to it, so that no other thread ever touches the device. Thread-safe.
// The lease and what `on_device_lost` uses must outlive it. How many bytes wait is bounded by the caller's ByteBudget.
class Executor {
 public:
  struct Options {
    std::string device;   // For messages.
    int max_queued = 64;  // Requests that wait; the running one is not counted.
    std::int64_t retry_delay_ms = 200;
    std::function<void()> on_device_lost;  // Called once, from the executor's thread.
  };
  enum class Needs : std::uint8_t { kDevice, kNothing };  // kNothing: a question to the backend, without the lease.
  struct Timing {
    std::int64_t queue_ns = 0;
    std::int64_t compute_ns = 0;
  };
  // `check` is the caller's, and also tells that the executor stops.
  using Work = absl::FunctionRef<absl::Status(GradientBackend& backend, const linear_logp::ContinueCheck& check)>;

  // Starts the thread and makes the backend on it; the factory's error is returned.
  static absl::StatusOr<std::unique_ptr<Executor>> Start(Options options, const BackendFactory& factory,
                                                         DeviceLease* lease);
  ~Executor();  // Stops.
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs `work` on the executor's thread, in order of arrival, and waits for it. While it waits `check` is asked about
  // every 10 ms: its error takes the request out of the queue at once. Errors: those of `work` and `check`;
  // RESOURCE_EXHAUSTED with a retry delay when the queue is full; UNAVAILABLE after Stop or when the device is lost.
  absl::StatusOr<Timing> Run(const linear_logp::ContinueCheck& check, Needs needs, Work work);

  // Has the backend give the memory that it keeps between requests back to the device, on the executor's thread;
  // returns when it has, or when the executor ends. REQUIRES that the caller holds the lease, so that nothing computes.
  // Nothing to do where nothing has run since the last time.
  void ReleaseCache();

  // Has `object`, which holds memory of the device, destroyed on the executor's thread, before the next request there.
  // Doesn't wait. After Stop it lives as long as the executor.
  void Discard(std::shared_ptr<const void> object);

  // Ends what waits and, at its next check, what runs, with UNAVAILABLE; then joins the thread. Idempotent.
  void Stop();

  bool healthy() const;
  int queued() const;

 private:
  struct Task;

  Executor(Options options, DeviceLease* lease);
  void Serve(const BackendFactory& factory);
  void RunTask(GradientBackend& backend, Task* task);
  void DestroyDiscarded();
  // Does what ReleaseCache waits for, if one does.
  void ReleaseCacheIfAsked(GradientBackend& backend);
  absl::Status Refusal() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  DeviceLease* const lease_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::list<Task*> queue_ ABSL_GUARDED_BY(mutex_);
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status start_status_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool healthy_ ABSL_GUARDED_BY(mutex_) = true;
  bool has_cache_ ABSL_GUARDED_BY(mutex_) = false;  // Something has run since the cache was released.
  bool release_asked_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar released_;
  std::vector<std::shared_ptr<const void>> discarded_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_EXECUTOR_H_
