#include "wire/memory_loan.h"

#include "base/mutex.h"

namespace keval::wire {

struct MemoryLoan::State {
  Mutex mutex;
  CondVar changed;
  bool returned ABSL_GUARDED_BY(mutex) = false;
};

MemoryLoan::MemoryLoan() : state_(std::make_shared<State>()) {
  // Points at the state for want of something better: only the count of references matters.
  owner_ = std::shared_ptr<const void>(state_.get(), [state = state_](const void*) {
    const MutexLock lock(&state->mutex);
    state->returned = true;
    state->changed.SignalAll();
  });
}

bool MemoryLoan::AwaitReturn(std::chrono::milliseconds timeout) {
  owner_.reset();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const MutexLock lock(&state_->mutex);
  while (!state_->returned) {
    if (!state_->changed.WaitUntil(&state_->mutex, deadline)) return state_->returned;
  }
  return true;
}

}  // namespace keval::wire
