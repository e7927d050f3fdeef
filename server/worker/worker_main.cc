#include "server/worker/worker_main.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/number.h"
#include "server/worker/message_channel.h"
#include "server/worker/running_page.h"
#include "server/worker/worker.pb.h"
#include "server/worker/worker_session.h"

namespace keval::worker {
namespace {

constexpr int kUsage = 2;

int Refuse() {
  constexpr char kText[] = "keval-worker is started by kevald and has no use by hand\n";
  const ssize_t written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
  static_cast<void>(written);
  return kUsage;
}

bool IsSocket(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

}  // namespace

int WorkerMain(int argc, char** argv, const WorkerHooks& hooks) {
  const std::optional<std::int64_t> parent = argc == 2 ? ParseInt64(argv[1]) : std::nullopt;
  if (!parent.has_value() || !IsSocket(kControlFd)) {
    return Refuse();
  }
  const absl::StatusOr<RunningPage> running = RunningPage::Attach(kRunningFd);
  if (!running.ok()) {
    return Refuse();
  }
  // A helper that an arm starts gets neither.
  fcntl(kControlFd, F_SETFD, FD_CLOEXEC);
  fcntl(kRunningFd, F_SETFD, FD_CLOEXEC);
  // No orphan outlives a killed server, even in the middle of a call; the second look closes the gap before the first.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != static_cast<pid_t>(*parent)) {
    return 0;
  }
  const rlimit no_core{0, 0};  // Tens of GiB of tensors; the signal's name says enough.
  setrlimit(RLIMIT_CORE, &no_core);

  BlockingChannel channel(kControlFd);
  WorkerSession session(running->mark());
  absl::Status status;
  while (status.ok()) {
    Request request;
    status = channel.Read(&request);
    if (!status.ok()) {
      break;
    }
    if (hooks.before != nullptr) {
      hooks.before(request);
    }
    session.Handle(request, [&channel, &status, &hooks](Reply reply) {
      if (hooks.change != nullptr) {
        hooks.change(&reply);
      }
      if (status.ok()) {
        status = channel.Write(reply);
      }
    });
  }
  return 0;
}

}  // namespace keval::worker
