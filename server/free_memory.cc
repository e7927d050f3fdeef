#include "server/free_memory.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace keval::server {

std::int64_t FreeMemory::Bytes(const std::string& device, Executor* executor, std::int64_t at_first) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point now = Clock::now();
  {
    MutexLock lock(&mutex_);
    const auto [answer, first] = answers_.try_emplace(device, Answer{now, at_first});
    if (!first && now - answer->second.asked < times_.fresh) return answer->second.bytes;
    answer->second.asked = now;  // Other callers don't ask meanwhile.
  }
  std::int64_t bytes = 0;
  const auto check = [deadline = now + times_.patience] {
    return Clock::now() < deadline ? absl::OkStatus() : absl::DeadlineExceededError("the device's thread is busy");
  };
  const absl::Status status =
      executor
          ->Run(check, Executor::Needs::kNothing,
                [&bytes](GradientBackend& backend, const linear_logp::ContinueCheck& /*check*/) {
                  const absl::StatusOr<std::int64_t> free_bytes = backend.FreeBytes();
                  bytes = free_bytes.value_or(0);
                  return free_bytes.status();
                })
          .status();
  MutexLock lock(&mutex_);
  Answer& answer = answers_[device];
  if (status.ok()) answer.bytes = bytes;
  return answer.bytes;
}

}  // namespace keval::server
