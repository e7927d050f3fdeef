// A bounded amount of memory that requests or stored tensors share.
#ifndef KEVAL_SERVER_BYTE_BUDGET_H_
#define KEVAL_SERVER_BYTE_BUDGET_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace keval::server {

// Thread-safe; must outlive its reservations.
class ByteBudget {
 public:
  // Gives its bytes back when it goes; movable.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Reservation& operator=(Reservation&& other) noexcept;
    ~Reservation() { Release(); }
    void Release();
    std::int64_t bytes() const { return bytes_; }

   private:
    friend class ByteBudget;
    Reservation(ByteBudget* budget, std::int64_t bytes) : budget_(budget), bytes_(bytes) {}

    ByteBudget* budget_ = nullptr;
    std::int64_t bytes_ = 0;
  };

  // `what` names the memory in refusals, e.g. "memory for requests".
  ByteBudget(std::string what, std::int64_t limit) : what_(std::move(what)), limit_(limit) {}

  // RESOURCE_EXHAUSTED naming bytes needed, free and the limit; with a retry delay where it could fit later.
  absl::StatusOr<Reservation> Reserve(std::int64_t bytes);

  std::int64_t used() const;
  std::int64_t limit() const { return limit_; }

 private:
  const std::string what_;
  const std::int64_t limit_;
  mutable Mutex mutex_;
  std::int64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_BYTE_BUDGET_H_
