#include "server/device_lease.h"

#include <algorithm>
#include <chrono>

namespace keval::server {
namespace {
constexpr std::chrono::milliseconds kCheckInterval{20};
}  // namespace

void DeviceLease::Grant::Release() {
  if (DeviceLease* const lease = std::exchange(lease_, nullptr)) {
    lease->Release();
  }
}

absl::StatusOr<DeviceLease::Grant> DeviceLease::Acquire(const std::function<absl::Status()>& check) {
  MutexLock lock(&mutex_);
  const std::uint64_t ticket = next_ticket_++;
  waiting_.push_back(ticket);
  while (held_ || waiting_.front() != ticket) {
    turn_.WaitUntil(&mutex_, std::chrono::steady_clock::now() + kCheckInterval);
    mutex_.Unlock();  // `check` may take locks of its own.
    absl::Status status = check ? check() : absl::OkStatus();
    mutex_.Lock();
    if (!status.ok()) {
      waiting_.erase(std::find(waiting_.begin(), waiting_.end(), ticket));
      turn_.SignalAll();
      return status;
    }
  }
  waiting_.pop_front();
  held_ = true;
  return Grant(this);
}

absl::StatusOr<DeviceLease::Grant> DeviceLease::AcquireForWorkers(const std::function<absl::Status()>& check) {
  absl::StatusOr<Grant> grant = Acquire(check);
  if (grant.ok() && release_cache_) {
    release_cache_();
  }
  return grant;
}

void DeviceLease::Release() {
  MutexLock lock(&mutex_);
  held_ = false;
  turn_.SignalAll();
}

}  // namespace keval::server
