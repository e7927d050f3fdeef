// SIGINT and SIGTERM as a cancellation instead of the program's death.
#ifndef KEVAL_CLIENT_CLI_INTERRUPTS_H_
#define KEVAL_CLIENT_CLI_INTERRUPTS_H_

#include <atomic>
#include <memory>
#include <thread>

#include "keval/call_options.h"

namespace keval::cli {

// The first signal cancels `cancel`; the second ends the program with exit code 7. Create before any other thread: all
// inherit the blocked signals. Owns the thread that waits for them.
class Interrupts {
 public:
  explicit Interrupts(std::shared_ptr<CancelSource> cancel);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

 private:
  void Wait();

  const std::shared_ptr<CancelSource> cancel_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_INTERRUPTS_H_
