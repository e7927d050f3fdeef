// What the rest of the machine does while workers measure.
#ifndef KEVAL_SERVER_WORKER_HOST_LOAD_H_
#define KEVAL_SERVER_WORKER_HOST_LOAD_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace keval::worker {

// Watches the CPU from its construction on, by /proc. Thread-compatible.
class HostLoad {
 public:
  HostLoad();

  // Cores that others kept busy since then, on average: neither this process nor `workers`, which were started since.
  // NaN where /proc doesn't tell (a worker has gone), or less than 0.1 s has passed: it counts hundredths of a second.
  double ForeignCores(const std::vector<int>& workers) const;

 private:
  const std::chrono::steady_clock::time_point begin_;
  const std::optional<std::int64_t> busy_;  // Clock ticks of all cores.
  const std::optional<std::int64_t> own_;   // Of this process.
};

}  // namespace keval::worker

#endif  // KEVAL_SERVER_WORKER_HOST_LOAD_H_
