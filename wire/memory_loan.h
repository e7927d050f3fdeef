// Memory of a caller's, lent to slices that may outlive the call they were sent in.
#ifndef KEVAL_WIRE_MEMORY_LOAN_H_
#define KEVAL_WIRE_MEMORY_LOAN_H_

#include <chrono>
#include <memory>

namespace keval::wire {

// After a cancel or a deadline gRPC may still hold slices over what was being sent: until the call's context is gone
// and, for what is on its way into the socket, until the connection has taken it or is closed. A loan tells when the
// last is back. Thread-safe.
class MemoryLoan {
 public:
  MemoryLoan();

  // What a slice holds: a Payload's owner.
  const std::shared_ptr<const void>& owner() const { return owner_; }

  // Takes no more from now on, then waits: whether every reference is back.
  bool AwaitReturn(std::chrono::milliseconds timeout);

 private:
  struct State;
  const std::shared_ptr<State> state_;
  std::shared_ptr<const void> owner_;
};

}  // namespace keval::wire

#endif  // KEVAL_WIRE_MEMORY_LOAN_H_
