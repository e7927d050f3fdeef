#include "tests/support/planted_harness.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

#include "base/number.h"
#include "server/worker/worker.pb.h"

namespace keval::testing {
namespace {

constexpr std::uint64_t kHardwareSlowdown = 0x8;  // NVML's bit.

// No more address space than there is: the next large allocation, which is the inputs', fails.
void TakeAwayMemory() {
  std::ifstream statm("/proc/self/statm");
  std::string pages;
  statm >> pages;
  const auto bytes = static_cast<rlim_t>(ParseInt64(pages).value_or(0) * sysconf(_SC_PAGESIZE));
  const rlimit limit{bytes, RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &limit);
}

class Harm {
 public:
  void Before(const worker::Request& request) {
    if (request.has_contract()) {
      variant_ = request.contract().candidate_variant();
    }
    if (!request.has_prepare() || request.prepare().variant().empty()) {
      return;
    }
    variant_ = request.prepare().variant();
    if (variant_ == "planted_harness_crashes") {
      std::raise(SIGSEGV);
    } else if (variant_ == "planted_harness_hangs") {
      pause();
    } else if (variant_ == "planted_harness_out_of_memory") {
      TakeAwayMemory();
    }
  }

  void Change(worker::Reply* reply) const {
    if (reply->has_contract_row() && variant_ == "planted_harness_crashes_in_contract") {
      std::raise(SIGSEGV);
    }
    if (!reply->has_block_done()) {
      return;
    }
    if (variant_ == "planted_harness_babbles") {
      reply->mutable_block_done()->clear_ns();
    } else if (variant_ == "planted_throttled") {
      reply->mutable_block_done()->set_throttled(true);
      reply->mutable_block_done()->mutable_after()->set_throttle_reasons(kHardwareSlowdown);
    }
  }

 private:
  std::string variant_;  // Of the last preparation, or the contract's candidate.
};

}  // namespace

worker::WorkerHooks HarmfulHooks() {
  const auto harm = std::make_shared<Harm>();
  return {[harm](const worker::Request& request) { harm->Before(request); },
          [harm](worker::Reply* reply) { harm->Change(reply); }};
}

}  // namespace keval::testing
