#include "server/serving_state.h"

#include "base/field_error.h"

namespace keval::server {
namespace {

constexpr std::int64_t kDrainRetryDelayMs = 1000;

absl::Status Draining() {
  return WithRetryDelayMs(absl::UnavailableError("the server is draining"), kDrainRetryDelayMs);
}

}  // namespace

ServingState::ServingState(const std::vector<std::string>& devices) {
  for (const std::string& device : devices) device_serves_[device] = true;
}

ServingState::Ticket::~Ticket() {
  if (state_ == nullptr) return;
  MutexLock lock(&state_->mutex_);
  --state_->calls_;
  state_->changed_.SignalAll();
}

absl::StatusOr<ServingState::Ticket> ServingState::Enter() {
  MutexLock lock(&mutex_);
  if (draining_) return Draining();
  ++calls_;
  return Ticket(this);
}

void ServingState::StartDraining() {
  MutexLock lock(&mutex_);
  draining_ = true;
  changed_.SignalAll();
}

bool ServingState::draining() const {
  MutexLock lock(&mutex_);
  return draining_;
}

bool ServingState::WaitUntilIdle(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(&mutex_);
  while (calls_ > 0) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    changed_.WaitUntil(&mutex_, deadline);
  }
  return true;
}

void ServingState::EndCalls() {
  MutexLock lock(&mutex_);
  end_calls_ = true;
}

absl::Status ServingState::EndStatus() const {
  MutexLock lock(&mutex_);
  // Without a delay: that would say that nothing was done, and the caller's client might repeat what can't be.
  return end_calls_ ? absl::UnavailableError("the server is draining and has ended the call") : absl::OkStatus();
}

void ServingState::DeviceLost(absl::string_view device) {
  MutexLock lock(&mutex_);
  device_serves_[std::string(device)] = false;
  any_device_lost_ = true;
  changed_.SignalAll();
}

bool ServingState::any_device_lost() const {
  MutexLock lock(&mutex_);
  return any_device_lost_;
}

std::optional<bool> ServingState::HealthLocked(absl::string_view service) const {
  if (service.empty() || service == "live") return true;
  if (service == "ready") return !draining_ && !any_device_lost_;
  const auto it = device_serves_.find(std::string(service));
  if (it == device_serves_.end()) return std::nullopt;
  return it->second && !draining_;
}

std::optional<bool> ServingState::Health(absl::string_view service) const {
  MutexLock lock(&mutex_);
  return HealthLocked(service);
}

void ServingState::WaitForHealthChange(absl::string_view service, std::optional<bool> seen,
                                       std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(&mutex_);
  while (!draining_ && HealthLocked(service) == seen && std::chrono::steady_clock::now() < deadline) {
    changed_.WaitUntil(&mutex_, deadline);
  }
}

}  // namespace keval::server
