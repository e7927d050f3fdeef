// Telling the causes of a failed call apart.
#ifndef KEVAL_CORE_MEASURE_FAILURE_TEXT_H_
#define KEVAL_CORE_MEASURE_FAILURE_TEXT_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace keval::measure {

// The status of an error that torch or CUDA described as `text`. RESOURCE_EXHAUSTED: out of memory, host or device;
// UNAVAILABLE: the device is lost; ABORTED: an illegal access or its like poisoned the device context; INTERNAL:
// anything else. The message is the text's first line.
absl::Status StatusOfFailureText(absl::string_view text);

// `work`, with whatever it throws turned into a status: the above, or the status that a variant was stopped with.
absl::Status CatchFailures(const std::function<absl::Status()>& work);

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_FAILURE_TEXT_H_
