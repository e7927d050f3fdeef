// What a handler knows of the call that it answers.
#ifndef KEVAL_SERVER_CALL_CONTEXT_H_
#define KEVAL_SERVER_CALL_CONTEXT_H_

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace keval::server {

struct CallContext {
  std::string principal;
  // CANCELLED or DEADLINE_EXCEEDED once nobody waits for the answer any more, UNAVAILABLE when the server ends the
  // call. Cheap; callable from any thread while the call lasts.
  std::function<absl::Status()> check;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_CALL_CONTEXT_H_
