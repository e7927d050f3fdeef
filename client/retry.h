// When a call is made again, and after how long.
#ifndef KEVAL_CLIENT_RETRY_H_
#define KEVAL_CLIENT_RETRY_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/field_error.h"
#include "client/stub.h"
#include "keval/call_options.h"
#include "keval/connection.h"

namespace keval {

// kYes: the call may reach the server twice without harm. kNo: it is made again only where the server itself said when.
enum class Repeatable : std::uint8_t { kYes, kNo };

// Delays that double, each drawn from the upper half of its range so that clients don't come back together. Not
// thread-safe; one for each call.
class Backoff {
 public:
  Backoff(absl::Duration initial, absl::Duration max) : next_(initial), max_(max), random_(std::random_device()()) {}
  absl::Duration Next() {
    const absl::Duration whole = next_;
    next_ = std::min(next_ * 2, max_);
    return whole * std::uniform_real_distribution<double>(0.5, 1.0)(random_);
  }

 private:
  absl::Duration next_;
  const absl::Duration max_;
  std::minstd_rand random_;
};

// How long to wait before the next attempt after `status`, or nullopt where there should be none: only UNAVAILABLE, and
// RESOURCE_EXHAUSTED with a delay of the server's, may pass by themselves.
std::optional<absl::Duration> DelayBeforeRetry(const absl::Status& status, Repeatable repeatable, Backoff& backoff);

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}

// Calls `attempt_once(Attempt)` until it succeeds, fails for good, has been made `options.max_attempts` times, or the
// next one could not begin before the deadline. Returns the last result; CANCELLED where the wait was cut short.
template <typename Function>
auto Retry(const ConnectionOptions& options, Repeatable repeatable, absl::Time deadline, CancelSource* cancel,
           const Function& attempt_once) -> decltype(attempt_once(Attempt())) {
  Backoff backoff(options.initial_backoff, options.max_backoff);
  for (int attempt = 1;; ++attempt) {
    auto result = attempt_once(Attempt{deadline, cancel});
    const absl::Status& status = StatusOf(result);
    if (status.ok() || attempt >= options.max_attempts) return result;
    const auto delay = DelayBeforeRetry(status, repeatable, backoff);
    if (!delay || absl::Now() + *delay >= deadline) return result;
    if (cancel == nullptr) {
      absl::SleepFor(*delay);
    } else if (!cancel->SleepFor(*delay)) {
      return absl::CancelledError("cancelled between two attempts");
    }
  }
}

}  // namespace keval

#endif  // KEVAL_CLIENT_RETRY_H_
