#include "server/clock_guard.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/measure/clock_lock.h"

namespace keval::server {

absl::StatusOr<std::unique_ptr<ClockGuard>> ClockGuard::Start(const std::string& program,
                                                              const std::string& record_folder,
                                                              const std::string& uuid) {
  std::array<int, 2> pipes{};
  if (pipe2(pipes.data(), O_CLOEXEC) != 0) {
    return absl::UnavailableError(absl::StrCat("no pipe for the clock's guard: ", std::strerror(errno)));
  }
  std::array<std::string, 4> texts = {program, kGuardClockFlag, record_folder, uuid};
  std::array<char*, 5> arguments = {texts[0].data(), texts[1].data(), texts[2].data(), texts[3].data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipes[0], STDIN_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, program.c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(pipes[0]);
  if (error != 0) {
    close(pipes[1]);
    return absl::UnavailableError(absl::StrCat("the clock's guard can't be started: ", std::strerror(error)));
  }
  return std::unique_ptr<ClockGuard>(new ClockGuard(pid, pipes[1]));
}

ClockGuard::~ClockGuard() {
  close(life_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

int GuardClock(const std::string& record_folder, const std::string& uuid) {
  for (const int signal_number : {SIGHUP, SIGINT, SIGTERM}) {
    std::signal(signal_number, SIG_IGN);
  }
  char byte = 0;
  ssize_t got = 0;
  do {
    got = read(STDIN_FILENO, &byte, 1);
  } while (got > 0 || (got < 0 && errno == EINTR));
  return measure::RestoreClock(record_folder, uuid).ok() ? 0 : 1;
}

}  // namespace keval::server
