// The calling thread's autocast state (P10): asked and set with nothing that PyTorch 2.4.1 did not have
// (docs/adr/0002-autocast-query.md).
#ifndef KEVAL_CORE_LINEAR_LOGP_AUTOCAST_H_
#define KEVAL_CORE_LINEAR_LOGP_AUTOCAST_H_

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include "core/linear_logp/problem.h"

namespace keval::linear_logp {

// Whether autocast is on for that kind of device on the calling thread.
bool AutocastEnabled(c10::DeviceType device_type);

// Sets autocast for one kind of device on the calling thread, kNone included: a caller's own autocast doesn't reach
// into the scope. The weight cache is off inside: with it, a matmul after an in-place change of a weight used the
// weight's old values. On exit enabled, dtype and cache flag are what they were, nesting is one less, and the cache is
// cleared when this scope was the outermost. Scopes nest; each is destroyed on the thread that made it.
class AutocastScope {
 public:
  AutocastScope(c10::DeviceType device_type, Autocast autocast);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const c10::DeviceType device_type_;
  const bool previous_enabled_;
  const c10::ScalarType previous_dtype_;
  const bool previous_cache_enabled_;
};

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_AUTOCAST_H_
