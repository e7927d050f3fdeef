// How much a device's A/A jobs differ from nothing: the source of default margins.
#ifndef KEVAL_SERVER_JOB_CALIBRATION_H_
#define KEVAL_SERVER_JOB_CALIBRATION_H_

#include <string>
#include <vector>

#include "core/verdict/verdict.h"
#include "keval/v1/server_info.pb.h"
#include "server/job_store.h"

namespace keval::server {

// Tells devices apart whose noise may differ: a GPU by its UUID, a CPU by its model.
std::string DeviceKey(const v1::DeviceInfo& device);

// What an A/A job that ended at `look` tells: L-hat of each primary and guard over each six of its rounds, for six are
// what a job decides on at its first look, however many rounds this one took.
std::vector<CalibrationPoint> CalibrationPoints(const v1::DeviceInfo& device, const verdict::Look& look);

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_CALIBRATION_H_
