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
    budget_ = std::exchange(other.budget_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void ByteBudget::Reservation::Release() {
  ByteBudget* const budget = std::exchange(budget_, nullptr);
  const std::int64_t bytes = std::exchange(bytes_, 0);
  if (budget == nullptr) return;
  MutexLock lock(&budget->mutex_);
  budget->used_ -= bytes;
}

absl::StatusOr<ByteBudget::Reservation> ByteBudget::Reserve(std::int64_t bytes) {
  std::int64_t free = 0;
  {
    MutexLock lock(&mutex_);
    free = limit_ - used_;
    if (bytes <= free) {
      used_ += bytes;
      return Reservation(this, bytes);
    }
  }
  absl::Status status =
      absl::ResourceExhaustedError(absl::StrCat(what_, ": ", bytes, " bytes needed, ", free, " free of ", limit_));
  if (bytes <= limit_) status = WithRetryDelayMs(status, kRetryDelayMs);
  return status;
}

std::int64_t ByteBudget::used() const {
  MutexLock lock(&mutex_);
  return used_;
}

}  // namespace keval::server
