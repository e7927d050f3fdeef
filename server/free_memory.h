// Free memory of the devices that run gradients, for ServerInfo.
#ifndef KEVAL_SERVER_FREE_MEMORY_H_
#define KEVAL_SERVER_FREE_MEMORY_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "base/mutex.h"
#include "server/executor.h"

namespace keval::server {

// Thread-safe; owner: the server info handler. The executors must outlive it.
class FreeMemory {
 public:
  // How long an answer is good, and how long a caller may wait for the device's thread.
  struct Times {
    std::chrono::milliseconds fresh{1000};
    std::chrono::milliseconds patience{50};
  };

  FreeMemory() : FreeMemory(Times()) {}
  explicit FreeMemory(Times times) : times_(times) {}

  // What the backend of `executor` said at most `fresh` ago. Where its thread is busy or the device is lost: what it
  // said last, or `at_first` when it never did; then it isn't asked again before `fresh` has passed. 0: not known.
  std::int64_t Bytes(const std::string& device, Executor* executor, std::int64_t at_first);

 private:
  struct Answer {
    std::chrono::steady_clock::time_point asked;
    std::int64_t bytes = 0;
  };

  const Times times_;
  Mutex mutex_;
  std::map<std::string, Answer> answers_ ABSL_GUARDED_BY(mutex_);  // By device.
};

}  // namespace keval::server

#endif  // KEVAL_SERVER_FREE_MEMORY_H_
