// Telling the causes of a failed call apart.
#ifndef KEVAL_CORE_LINEAR_LOGP_FAILURE_TEXT_H_
#define KEVAL_CORE_LINEAR_LOGP_FAILURE_TEXT_H_

#include <exception>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace keval::linear_logp {

// The first line of what torch or CUDA said, printable and bounded: a status's message.
std::string FailureMessage(absl::string_view text);

// The status of an error that torch described as `text`; where CUDA's own code is at hand, CudaStatus is surer.
// RESOURCE_EXHAUSTED: out of memory, host or device; UNAVAILABLE: the device is lost; ABORTED: an illegal access or its
// like poisoned the device context; INTERNAL: anything else.
absl::Status StatusOfFailureText(absl::string_view text);

// Of what torch code, or a variant, threw: by its type where that tells, else by its text.
absl::Status StatusOfFailure(const std::exception& error);

// `work`, with whatever it throws turned into a status: the above, or the status that a variant was stopped with.
absl::Status CatchFailures(const std::function<absl::Status()>& work);

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_FAILURE_TEXT_H_
