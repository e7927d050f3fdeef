#include "server/stop_signal.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "absl/strings/str_cat.h"

namespace keval::server {
namespace {

std::array<int, 2> g_pipe = {-1, -1};  // Set once, before the handler is installed.

extern "C" void OnStopSignal(int /*signal*/) {
  const int saved = errno;
  const char byte = 0;
  // A full pipe already says what there is to say.
  static_cast<void>(!write(g_pipe[1], &byte, 1));
  errno = saved;
}

}  // namespace

absl::Status StopSignal::Install() {
  if (pipe2(g_pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return absl::UnavailableError(absl::StrCat("no pipe for signals: error ", errno));
  }
  struct sigaction action {};
  action.sa_handler = OnStopSignal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGINT}) {
    if (sigaction(signal, &action, nullptr) != 0) {
      return absl::UnavailableError(absl::StrCat("no handler for signals: error ", errno));
    }
  }
  return absl::OkStatus();
}

bool StopSignal::Wait(std::chrono::milliseconds timeout) {
  pollfd entry{g_pipe[0], POLLIN, 0};
  return poll(&entry, 1, static_cast<int>(timeout.count())) > 0;
}

}  // namespace keval::server
