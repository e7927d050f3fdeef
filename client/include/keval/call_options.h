// What a single call of the client may be told: how long it may take, and how to stop it.
#ifndef KEVAL_CALL_OPTIONS_H_
#define KEVAL_CALL_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace keval {

// Stops calls from another thread. Thread-safe; shared by whoever cancels and the calls under way.
class CancelSource {
 public:
  // Ends every call that was given this source, now and later, with CANCELLED. Idempotent.
  void Cancel();
  bool cancelled() const;

  // False when cancelled before or during the time.
  bool SleepFor(absl::Duration duration) const;

  // While it lives, Cancel() runs `on_cancel` (at once if that has happened already). For the client library's own use;
  // `on_cancel` must not call back into the source.
  class Registration {
   public:
    Registration(CancelSource* source, std::function<void()> on_cancel);
    ~Registration();
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    CancelSource* const source_;  // Null: never cancelled.
    std::uint64_t id_ = 0;
  };

 private:
  struct State;
  State& state() const { return *state_; }
  static std::shared_ptr<State> NewState();
  const std::shared_ptr<State> state_ = NewState();
};

struct CallOptions {
  // For the whole call, retries included; the connection's default where it is infinite.
  absl::Duration timeout = absl::InfiniteDuration();
  std::shared_ptr<CancelSource> cancel;  // Null: can't be cancelled.
};

}  // namespace keval

#endif  // KEVAL_CALL_OPTIONS_H_
