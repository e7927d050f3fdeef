// SIGTERM and SIGINT as something to wait for.
#ifndef KEVAL_SERVER_STOP_SIGNAL_H_
#define KEVAL_SERVER_STOP_SIGNAL_H_

#include <chrono>

#include "absl/status/status.h"

namespace keval::server {

// A handler and a pipe, not a blocked mask: worker processes would inherit the mask, and handlers end with exec.
class StopSignal {
 public:
  // Once in a process, before its threads start. UNAVAILABLE where the system refuses.
  static absl::Status Install();

  // True when a signal has come, within `timeout`.
  static bool Wait(std::chrono::milliseconds timeout);
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_STOP_SIGNAL_H_
