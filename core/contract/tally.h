// One row of the contract in the making: takes every observation, keeps the worst. Torch-free; internal to
// core/contract.
#ifndef KEVAL_CORE_CONTRACT_TALLY_H_
#define KEVAL_CORE_CONTRACT_TALLY_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "core/contract/contract.h"

namespace keval::contract {

class Tally {
 public:
  Tally(absl::string_view id, absl::string_view arm);

  // Passes iff measured <= limit and the limit is finite, so that a NaN on either side fails. `detail` says more of it.
  void Measure(absl::string_view case_name, double measured, double limit, absl::string_view detail = "");
  // Counts what must not be there, e.g. elements that differ: passes iff there is none. `why` is what they are.
  void Count(absl::string_view case_name, std::int64_t found, absl::string_view why);
  // A yes or no, which leaves the row without a figure unless another observation has one; `why` is what is wrong where
  // it isn't so.
  void Expect(absl::string_view case_name, bool holds, absl::string_view why);
  void Fail(absl::string_view case_name, absl::string_view why) { Expect(case_name, false, why); }
  // What else a row that doesn't fail says: that the line doesn't bind here, that the variant declines this input, or
  // figures. A row with notes and no observation is not applicable.
  void Note(absl::string_view text);

  Row ToRow() const;

 private:
  void Take(absl::string_view case_name, double measured, double limit, bool holds, absl::string_view detail);

  Row row_;
  double severity_ = -1;  // measured / limit of the worst so far; infinite once it failed.
  std::string notes_;
};

}  // namespace keval::contract

#endif  // KEVAL_CORE_CONTRACT_TALLY_H_
