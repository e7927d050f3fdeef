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

// L-hat of every primary and guard at the look that ended an A/A job.
std::vector<CalibrationPoint> CalibrationPoints(const v1::DeviceInfo& device, const verdict::Look& look);

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_CALIBRATION_H_
