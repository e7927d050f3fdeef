// What the procedure must hold, against what calibration rounds show. Internal to core/verdict's characteristics.
#ifndef KEVAL_CORE_VERDICT_CHARACTERISTIC_TARGETS_H_
#define KEVAL_CORE_VERDICT_CHARACTERISTIC_TARGETS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "core/verdict/calibration_runs.h"
#include "core/verdict/characteristics.h"
#include "core/verdict/config.h"

namespace keval::verdict {

// Every target, also those that the rounds say nothing of. `rounds` by effect; `is_h200`: the device's own targets
// apply too; `stream`: seed of the first of the draws that targets make for themselves.
std::vector<Target> JudgeTargets(const std::vector<EffectRates>& effects, const std::map<double, Runs>& rounds,
                                 const Config& config, bool is_h200, int resampled_jobs, std::uint64_t stream);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_CHARACTERISTIC_TARGETS_H_
