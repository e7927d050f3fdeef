#include "server/byte_budget.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"

namespace keval::server {
namespace {
constexpr std::int64_t kRetryDelayMs = 500;
}  // namespace

ByteBudget::Reservation& ByteBudget::Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    Release();
    state_ = std::move(other.state_);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void ByteBudget::Reservation::Release() {
  const std::shared_ptr<State> state = std::move(state_);
  const std::int64_t bytes = std::exchange(bytes_, 0);
  if (state == nullptr) return;
  MutexLock lock(&state->mutex);
  state->used -= bytes;
}

absl::StatusOr<ByteBudget::Reservation> ByteBudget::Reserve(std::int64_t bytes) {
  std::int64_t free = 0;
  {
    MutexLock lock(&state_->mutex);
    free = limit_ - state_->used;
    if (bytes <= free) {
      state_->used += bytes;
      return Reservation(state_, bytes);
    }
  }
  absl::Status status =
      absl::ResourceExhaustedError(absl::StrCat(what_, ": ", bytes, " bytes needed, ", free, " free of ", limit_));
  if (bytes <= limit_) status = WithRetryDelayMs(status, kRetryDelayMs);
  return status;
}

std::int64_t ByteBudget::used() const {
  MutexLock lock(&state_->mutex);
  return state_->used;
}

}  // namespace keval::server
