#include "core/measure/op_counter.h"

#include <ATen/record_function.h>

#include <memory>

namespace keval::measure {
namespace {

// torch takes a plain function pointer: where the calling thread's counts go.
thread_local CountsByName* active_counts = nullptr;

std::unique_ptr<at::ObserverContext> CountOne(const at::RecordFunction& function) {
  if (active_counts != nullptr) {
    ++(*active_counts)[function.name()];
  }
  return nullptr;
}

class ScopedCallback {
 public:
  explicit ScopedCallback(CountsByName* counts)
      : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&CountOne).scopes({at::RecordScope::FUNCTION}))) {
    active_counts = counts;
  }
  ~ScopedCallback() {
    active_counts = nullptr;
    at::removeCallback(handle_);
  }
  ScopedCallback(const ScopedCallback&) = delete;
  ScopedCallback& operator=(const ScopedCallback&) = delete;

 private:
  at::CallbackHandle handle_;
};

}  // namespace

absl::StatusOr<CountsByName> CountOps(const std::function<absl::Status()>& call) {
  CountsByName counts;
  absl::Status status;
  {
    const ScopedCallback callback(&counts);
    status = call();
  }
  if (!status.ok()) {
    return status;
  }
  return counts;
}

}  // namespace keval::measure
