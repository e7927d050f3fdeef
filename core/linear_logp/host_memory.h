// How much memory this process can still take from the host. Torch-free.
#ifndef KEVAL_CORE_LINEAR_LOGP_HOST_MEMORY_H_
#define KEVAL_CORE_LINEAR_LOGP_HOST_MEMORY_H_

#include <cstdint>
#include <filesystem>

namespace keval::linear_logp {

struct HostMemory {
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;
};

// The smaller of the machine's (MemTotal, MemAvailable) and of every control group's limit that this process is under
// (version 1 and 2; file pages that a group can drop count as free). INT64_MAX where the system tells nothing.
// `root` stands for "/", so that tests can show it files of their own.
HostMemory ReadHostMemory(const std::filesystem::path& root = "/");

}  // namespace keval::linear_logp

#endif  // KEVAL_CORE_LINEAR_LOGP_HOST_MEMORY_H_
