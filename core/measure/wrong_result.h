// What is wrong about a result that is not what it must be. Torch-free.
#ifndef KEVAL_CORE_MEASURE_WRONG_RESULT_H_
#define KEVAL_CORE_MEASURE_WRONG_RESULT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace keval::measure {

enum class WrongResult : std::uint8_t {
  kOther,             // Not what base computes, and none of the below.
  kCachedResult,      // What belongs to the other set of inputs.
  kInputsChanged,     // An input was written to.
  kLowPrecision,      // float32 products computed with operands of fewer bits.
  kNotRepeatable,     // Other bits from the same inputs and the same memory.
  kNotWritten,        // Some of it holds what fresh or freed memory was filled with.
  kPrecisionChanged,  // The process's precision settings were changed.
  kRecycledMemory,    // Depends on what fresh memory holds.
  kTimedDifferently,  // Right before timing, wrong in a block, and none of the above.
  kUnfinishedWork,    // Still being written after the call returned.
};

// "WRONG_RESULT" for kOther, "CACHED_RESULT", …: a reason of a job.
absl::string_view WrongResultName(WrongResult kind);

// DATA_LOSS with the kind beside the text.
absl::Status WrongResultError(WrongResult kind, absl::string_view text);

// The name of a DATA_LOSS status's kind; "WRONG_RESULT" where it has none.
absl::string_view WrongResultNameOf(const absl::Status& status);

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_WRONG_RESULT_H_
