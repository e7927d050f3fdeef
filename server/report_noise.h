// What else happened on the device and the machine while a job was measured, for its report. None of it decides.
#ifndef KEVAL_SERVER_REPORT_NOISE_H_
#define KEVAL_SERVER_REPORT_NOISE_H_

#include <map>
#include <string>
#include <vector>

#include "core/verdict/samples.h"
#include "server/job_evidence.h"

namespace keval::server {

// By series: what the samples say in clock cycles instead of time, each block's times multiplied by the mean of the SM
// clocks read at its edges. A gain that is there in time and gone in cycles came from the clock. Without a clock at
// both edges of all its blocks a series is absent.
std::map<std::string, Json> CyclesJson(const std::vector<verdict::Sample>& samples,
                                       const std::vector<RoundEvidence>& rounds);

// report.json's `noise`.
Json NoiseJson(const std::vector<RoundEvidence>& rounds);

// Sentences for the report's notes: what of `noise`, of a job on a CPU or a GPU, a reader should know.
std::vector<std::string> NoiseNotes(const std::vector<RoundEvidence>& rounds, bool cpu);

}  // namespace keval::server

#endif  // KEVAL_SERVER_REPORT_NOISE_H_
