// CONTRACT.md (docs/contract.md) as a program: checks that two variants of linear_logp keep it, on inputs that it
// generates itself, and gives one row for each line of the contract and arm. Torch-free header.
#ifndef KEVAL_CORE_CONTRACT_CONTRACT_H_
#define KEVAL_CORE_CONTRACT_CONTRACT_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/running.h"
#include "core/linear_logp/engine.h"

namespace keval::contract {

enum class RowStatus : std::uint8_t { kPass, kFail, kNotApplicable };

// "pass", "fail", "not_applicable".
absl::string_view RowStatusName(RowStatus status);

// One line of the contract for one arm. Where a line is shown on several inputs, the row is of the worst: a failure
// before a pass, then the greatest measured / limit.
struct Row {
  std::string id;         // "P1" .. "P10", "C1" .. "C14".
  std::string arm;        // "base", "candidate", or "both" (what compares them).
  std::string case_name;  // Which inputs, e.g. "bfloat16/plain_bias"; empty where not applicable.
  // In the line's own units; where it counts (elements or ops that differ), the count and 0. Both NaN where it has no
  // figure. A row whose measured is NaN and limit is not has failed.
  double measured = std::numeric_limits<double>::quiet_NaN();
  double limit = std::numeric_limits<double>::quiet_NaN();
  RowStatus status = RowStatus::kNotApplicable;
  std::string why;  // Why it failed or does not apply; where it passed, what else is to be reported (C1, C2, C13).
};

struct ContractOptions {
  std::string base = "portable_matmul_add";
  std::string candidate = "portable_addmm";
  linear_logp::Device device;
  std::uint64_t seed = 0;  // Of the generated inputs.
  // Intra-op threads while it runs, then what they were; 0 leaves them. The inputs are small: on a busy machine more
  // threads than one make it ten times slower.
  int threads = 1;
  // Set to the arm (kBase, kArm) while its code runs and until the device is through with it, to kHarness otherwise; an
  // error that an arm's call ended the check with leaves it. Null: nobody asks. Outlives the call.
  RunningMark* running = nullptr;
  bool quick = false;  // Leaves out C12 (tens of GiB on a GPU; a CPU never runs it) and the larger inputs.
};

// Checks every line for both arms; a few seconds on two CPU cores. `on_row` gets each row as soon as it is known, in
// the order of the result. A variant that throws fails the row that called it, with what it threw as `why`. After each
// of its calls the device has done all that it was given, on every stream of the process: what a variant leaves undone
// on a side stream shows when blocks are measured (core/measure/arm.h), not here.
//
// A variant that accepts none of the inputs fails C2.
//
// INVALID_ARGUMENT (field "variant", "device"); FAILED_PRECONDITION where the device can't be used; ABORTED where a
// variant poisoned the device's context; UNAVAILABLE where the device itself is lost; RESOURCE_EXHAUSTED where a
// variant or the check found too little memory, which says nothing about the variant; INTERNAL where the check's own
// code threw something else; what `check` answered where it stopped the call (asked between calls of a variant and, by
// the variant, between chunks). Not to be called from two threads at once: it sets the process's thread count and
// numerics (numerics.h), and on CUDA it uses the device's current stream.
absl::StatusOr<std::vector<Row>> CheckContract(const ContractOptions& options,
                                               const std::function<void(const Row&)>& on_row,
                                               const linear_logp::ContinueCheck& check);

// Whether there are rows and none has failed.
bool Passed(const std::vector<Row>& rows);

}  // namespace keval::contract

#endif  // KEVAL_CORE_CONTRACT_CONTRACT_H_
