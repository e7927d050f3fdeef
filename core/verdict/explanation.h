// An outcome in words.
#ifndef KEVAL_CORE_VERDICT_EXPLANATION_H_
#define KEVAL_CORE_VERDICT_EXPLANATION_H_

#include <string>

namespace keval::verdict {

struct Config;
struct Outcome;

// What decided, with its figures, and for INCONCLUSIVE the next step. Printable whatever the series are called. Reads
// all of `outcome` but `detail`; `for_more_rounds` as in Evidence.
std::string Explain(const Outcome& outcome, const Config& config, const std::string& for_more_rounds);

// ln units as a percentage with a sign: 0.0296 is "+3.00 %".
std::string GainPercentText(double log_ratio);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_EXPLANATION_H_
