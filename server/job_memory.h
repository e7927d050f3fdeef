// Whether the processes of a round fit on their device: bytes computed before they are started. Pure functions.
#ifndef KEVAL_SERVER_JOB_MEMORY_H_
#define KEVAL_SERVER_JOB_MEMORY_H_

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "keval/v1/benchmark.pb.h"
#include "keval/v1/server_info.pb.h"
#include "server/round_collector.h"

namespace keval::server {

// What the processes that a round has at a time (two on a CPU, three on a GPU) take together while one of them has its
// turn. A turn holds base's results beside the arm's own call, to compare with. `cpu`: memory that a call is done with
// goes back to the system; a GPU's caching allocator keeps it, so that side by side each process holds its peak.
double RoundBytes(const WorkerBytes& bytes, bool cpu, v1::ProcessMode mode);

// Whose round takes most of a pilot's workers; nothing where there are none.
WorkerBytes LargestWorker(const std::map<std::string, WorkerBytes>& by_series, bool cpu, v1::ProcessMode mode);

// The least that a worker of `shape` can do with.
WorkerBytes LeastWorkerBytes(const v1::Shape& shape, bool cpu);

// FAILED_PRECONDITION naming `field` with every number, and what the other mode would need, where a round of such
// workers takes more of the device than is free by now (`free_bytes`; nullopt: unknown, then than it has) without the
// reserve that stays with the driver and with what else comes and goes: ReserveBytes. A device of unknown memory has
// enough.
absl::Status CheckRoundFits(const std::string& field, const WorkerBytes& bytes, const v1::DeviceInfo& device,
                            std::optional<double> free_bytes, v1::ProcessMode mode);

// One part in fifty of what the device has.
double ReserveBytes(const v1::DeviceInfo& device);

}  // namespace keval::server

#endif  // KEVAL_SERVER_JOB_MEMORY_H_
