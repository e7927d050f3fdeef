// How a loss of a job's work is called and kept. Pure functions.
#ifndef KEVAL_SERVER_JOB_LOSS_H_
#define KEVAL_SERVER_JOB_LOSS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "server/job_store.h"
#include "server/round_collector.h"

namespace keval::server {

// The reason of a job that ends by `failure`: "CANDIDATE_CRASHED", "DEVICE_LOST".
std::string LossReason(const WorkFailure& failure);

// Whether `cause` is an arm's.
bool IsArm(absl::string_view cause);

// `round`: -1 in a phase without rounds.
StoredLoss ToLoss(absl::string_view phase, int round, const WorkFailure& failure);

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_LOSS_H_
