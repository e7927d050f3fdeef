// On which CPUs of the host a round's processes run.
#ifndef KEVAL_SERVER_WORKER_CPU_SET_H_
#define KEVAL_SERVER_WORKER_CPU_SET_H_

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace keval::worker {

// Those that this process may use, in ascending order; empty where the system doesn't tell.
std::vector<int> UsableCpus();

// `count` neighbours of `usable`, in a circle, from the `draw`th on; empty, for "any", where there are no more than
// that.
std::vector<int> ChooseCpus(const std::vector<int>& usable, int count, std::uint64_t draw);

// Restricts a process of one thread, and what it will start, to `cpus`. FAILED_PRECONDITION with the system's reason.
absl::Status PinProcess(pid_t process, const std::vector<int>& cpus);

}  // namespace keval::worker

#endif  // KEVAL_SERVER_WORKER_CPU_SET_H_
