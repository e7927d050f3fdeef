#include "keval/call_options.h"

#include <chrono>
#include <map>
#include <utility>

#include "base/mutex.h"

namespace keval {

struct CancelSource::State {
  mutable Mutex mutex;
  mutable CondVar changed;
  bool cancelled ABSL_GUARDED_BY(mutex) = false;
  std::uint64_t next_id ABSL_GUARDED_BY(mutex) = 1;
  std::map<std::uint64_t, std::function<void()>> registered ABSL_GUARDED_BY(mutex);
};

std::shared_ptr<CancelSource::State> CancelSource::NewState() { return std::make_shared<State>(); }

void CancelSource::Cancel() {
  // Under the lock, so that no registration goes away while its function runs.
  const MutexLock lock(&state().mutex);
  if (state().cancelled) return;
  state().cancelled = true;
  for (const auto& [id, on_cancel] : state().registered) on_cancel();
  state().changed.SignalAll();
}

bool CancelSource::cancelled() const {
  const MutexLock lock(&state().mutex);
  return state().cancelled;
}

bool CancelSource::SleepFor(absl::Duration duration) const {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(duration);
  const MutexLock lock(&state().mutex);
  while (!state().cancelled && std::chrono::steady_clock::now() < deadline) {
    state().changed.WaitUntil(&state().mutex, deadline);
  }
  return !state().cancelled;
}

CancelSource::Registration::Registration(CancelSource* source, std::function<void()> on_cancel) : source_(source) {
  if (source_ == nullptr) return;
  const MutexLock lock(&source_->state().mutex);
  if (source_->state().cancelled) on_cancel();
  id_ = source_->state().next_id++;
  source_->state().registered.emplace(id_, std::move(on_cancel));
}

CancelSource::Registration::~Registration() {
  if (source_ == nullptr) return;
  const MutexLock lock(&source_->state().mutex);
  source_->state().registered.erase(id_);
}

}  // namespace keval
