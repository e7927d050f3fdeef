#include "server/worker/cpu_set.h"

#include <sched.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace keval::worker {

std::vector<int> UsableCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {  // Fails beyond 1024 CPUs: then nobody is pinned.
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) {
        cpus.push_back(cpu);
      }
    }
  }
  return cpus;
}

std::vector<int> ChooseCpus(const std::vector<int>& usable, int count, std::uint64_t draw) {
  std::vector<int> chosen;
  if (count < 1 || static_cast<std::size_t>(count) >= usable.size()) {
    return chosen;
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    chosen.push_back(usable[(draw % usable.size() + i) % usable.size()]);
  }
  return chosen;
}

absl::Status PinProcess(pid_t process, const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    CPU_SET(cpu, &set);
  }
  if (sched_setaffinity(process, sizeof(set), &set) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("pinning a process to CPU ", absl::StrJoin(cpus, ", "), ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace keval::worker
