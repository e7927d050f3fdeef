// A bounded amount of memory that requests or stored tensors share.
#ifndef KEVAL_SERVER_BYTE_BUDGET_H_
#define KEVAL_SERVER_BYTE_BUDGET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace keval::server {

// Thread-safe. A reservation may outlive it: gRPC lets go of what was sent after the call, and even the server, has
// ended.
class ByteBudget {
  struct State {
    mutable Mutex mutex;
    std::int64_t used ABSL_GUARDED_BY(mutex) = 0;
  };

 public:
  // Gives its bytes back when it goes; movable.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept
        : state_(std::move(other.state_)), bytes_(std::exchange(other.bytes_, 0)) {}
    Reservation& operator=(Reservation&& other) noexcept;
    ~Reservation() { Release(); }
    void Release();
    std::int64_t bytes() const { return bytes_; }

   private:
    friend class ByteBudget;
    Reservation(std::shared_ptr<State> state, std::int64_t bytes) : state_(std::move(state)), bytes_(bytes) {}

    std::shared_ptr<State> state_;  // Null: of nothing.
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
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_BYTE_BUDGET_H_
