// Who may use a device now: the gradient executor for one request, or a benchmark job for one quad.
#ifndef KEVAL_SERVER_DEVICE_LEASE_H_
#define KEVAL_SERVER_DEVICE_LEASE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace keval::server {

// First come, first served, so that neither side starves: gradients wait for at most one quad. Thread-safe; outlives
// its grants.
class DeviceLease {
 public:
  // Gives the device back when it goes; movable.
  class Grant {
   public:
    Grant() = default;
    explicit Grant(DeviceLease* lease) : lease_(lease) {}
    Grant(Grant&& other) noexcept : lease_(std::exchange(other.lease_, nullptr)) {}
    Grant& operator=(Grant&& other) noexcept {
      if (this != &other) {
        Release();
        lease_ = std::exchange(other.lease_, nullptr);
      }
      return *this;
    }
    ~Grant() { Release(); }
    void Release();

   private:
    DeviceLease* lease_ = nullptr;
  };

  // What gives the memory that this process keeps on the device back to it; AcquireForWorkers calls it. Before anybody
  // acquires. Empty: nothing is kept.
  void SetReleaseCache(std::function<void()> release_cache) { release_cache_ = std::move(release_cache); }

  // Waits for its turn, asking `check` about every 20 ms; its non-OK answer ends the wait and is returned.
  absl::StatusOr<Grant> Acquire(const std::function<absl::Status()>& check);

  // The same for other processes' use of the device: they find all the memory free that this one doesn't need.
  absl::StatusOr<Grant> AcquireForWorkers(const std::function<absl::Status()>& check);

 private:
  void Release();

  std::function<void()> release_cache_;
  Mutex mutex_;
  CondVar turn_;
  std::uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::uint64_t> waiting_ ABSL_GUARDED_BY(mutex_);  // Tickets, first come first; one that gives up leaves.
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_DEVICE_LEASE_H_
