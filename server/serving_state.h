// Whether the server takes requests, what its health says, and how many calls it is answering.
#ifndef KEVAL_SERVER_SERVING_STATE_H_
#define KEVAL_SERVER_SERVING_STATE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"

namespace keval::server {

// Health names: "" and "live" serve as long as the process does; "ready" and each device's name stop when the server
// drains, a device's (and "ready") also when it is lost. Thread-safe; must outlive its tickets.
class ServingState {
 public:
  explicit ServingState(const std::vector<std::string>& devices);

  // Held while a call is answered; movable.
  class Ticket {
   public:
    Ticket(Ticket&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
    Ticket& operator=(Ticket&&) = delete;
    ~Ticket();

   private:
    friend class ServingState;
    explicit Ticket(ServingState* state) : state_(state) {}
    ServingState* state_;
  };
  // UNAVAILABLE with a retry delay while draining.
  absl::StatusOr<Ticket> Enter();

  // "ready" and the devices stop serving, new calls are refused. Idempotent.
  void StartDraining();
  bool draining() const;
  // True when every ticket has gone, false at the deadline.
  bool WaitUntilIdle(std::chrono::steady_clock::time_point deadline);
  // From now on `EndStatus` tells every call to end.
  void EndCalls();
  absl::Status EndStatus() const;

  void DeviceLost(absl::string_view device);
  bool any_device_lost() const;

  // Serving or not; nullopt for an unknown name.
  std::optional<bool> Health(absl::string_view service) const;
  // Waits until Health(service) differs from `seen`, the server drains, or the deadline.
  void WaitForHealthChange(absl::string_view service, std::optional<bool> seen,
                           std::chrono::steady_clock::time_point deadline);

 private:
  std::optional<bool> HealthLocked(absl::string_view service) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, bool> device_serves_ ABSL_GUARDED_BY(mutex_);
  bool any_device_lost_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool end_calls_ ABSL_GUARDED_BY(mutex_) = false;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_SERVING_STATE_H_
