#include "client/cli/interrupts.h"

#include <unistd.h>
#include <csignal>
#include <ctime>
#include <utility>

#include "client/cli/exit_code.h"

namespace keval::cli {
namespace {

sigset_t InterruptSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

Interrupts::Interrupts(std::shared_ptr<CancelSource> cancel) : cancel_(std::move(cancel)) {
  const sigset_t set = InterruptSet();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { Wait(); });
}

Interrupts::~Interrupts() {
  stop_ = true;
  thread_.join();
}

void Interrupts::Wait() {
  const sigset_t set = InterruptSet();
  const timespec slice = {0, 50'000'000};  // How long the end of the program may wait for this thread.
  while (!stop_) {
    if (sigtimedwait(&set, nullptr, &slice) < 0) continue;
    if (cancel_->cancelled()) _exit(kCancelled);
    cancel_->Cancel();
  }
}

}  // namespace keval::cli
