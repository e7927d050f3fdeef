// How near the process is to its limit of file descriptors. Debian's gRPC has no cap on connections, and its listener
// stops for good once accept fails for want of a descriptor; so the limit is the cap, and its nearness worth a line.
#ifndef KEVAL_SERVER_DESCRIPTOR_WATCH_H_
#define KEVAL_SERVER_DESCRIPTOR_WATCH_H_

#include <chrono>
#include <cstdint>

namespace keval::server {

struct DescriptorUse {
  std::int64_t open = 0;   // 0: can't be told.
  std::int64_t limit = 0;  // RLIMIT_NOFILE's soft limit.
};
DescriptorUse ReadDescriptorUse();

// Owner: main's loop, from one thread.
class DescriptorWatch {
 public:
  // From time to time: counts at most every ten seconds. True where a warning is due: four fifths are in use, and the
  // last warning is at least a minute old.
  bool Due(const DescriptorUse& use, std::chrono::steady_clock::time_point now);

  // Counts and logs.
  void Tidy();

 private:
  std::chrono::steady_clock::time_point next_count_;
  std::chrono::steady_clock::time_point next_warning_;
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_DESCRIPTOR_WATCH_H_
