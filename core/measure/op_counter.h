// Which torch operators a call executes, by name.
#ifndef KEVAL_CORE_MEASURE_OP_COUNTER_H_
#define KEVAL_CORE_MEASURE_OP_COUNTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace keval::measure {

using CountsByName = std::map<std::string, std::int64_t>;

// Runs `call` on this thread and counts the operators that it dispatches here, "aten::mm" and its like, nested ones
// included. Returns `call`'s status where that is not OK. Not for timed or memory-measured calls.
absl::StatusOr<CountsByName> CountOps(const std::function<absl::Status()>& call);

}  // namespace keval::measure

#endif  // KEVAL_CORE_MEASURE_OP_COUNTER_H_
