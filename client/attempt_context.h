// A ClientContext with an attempt's deadline and cancellation.
#ifndef KEVAL_CLIENT_ATTEMPT_CONTEXT_H_
#define KEVAL_CLIENT_ATTEMPT_CONTEXT_H_

#include <grpcpp/client_context.h>

#include <string>

#include "absl/time/time.h"
#include "client/stub.h"
#include "keval/call_options.h"

namespace keval {

// Lives as long as its call. Not movable: the cancel source holds a reference while it lives.
class AttemptContext {
 public:
  // `authorization`: see Credentials; empty: none.
  explicit AttemptContext(const Attempt& attempt, const std::string& authorization = "")
      : registration_(attempt.cancel, [this] { context_.TryCancel(); }) {
    if (!authorization.empty()) context_.AddMetadata("authorization", authorization);
    if (attempt.deadline != absl::InfiniteFuture()) context_.set_deadline(absl::ToChronoTime(attempt.deadline));
  }
  grpc::ClientContext* get() { return &context_; }
  const grpc::ClientContext& operator*() const { return context_; }

 private:
  grpc::ClientContext context_;
  CancelSource::Registration registration_;  // Goes first.
};

}  // namespace keval

#endif  // KEVAL_CLIENT_ATTEMPT_CONTEXT_H_
