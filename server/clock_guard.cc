#include "server/clock_guard.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "core/measure/clock_lock.h"

namespace keval::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kWatching = 'w';
constexpr std::chrono::seconds kStartTimeout{60};  // kevald's libraries are large, and may come from a cold disk.
constexpr int kTries = 5;                          // A device whose owner has just died may be busy with that.
constexpr milliseconds kTryInterval{200};

struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

absl::StatusOr<Pipe> MakePipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return absl::UnavailableError(absl::StrCat("no pipe for the clock's guard: ", std::strerror(errno)));
  }
  return Pipe{ends[0], ends[1]};
}

// 0, or the error of whatever failed.
int Spawn(const std::string& program, const std::string& record_folder, const std::string& uuid,
          const std::string& owner, int life, int told, pid_t* pid) {
  std::array<std::string, 5> texts = {program, kGuardClockFlag, record_folder, uuid, owner};
  std::array<char*, 6> arguments = {texts[0].data(), texts[1].data(), texts[2].data(),
                                    texts[3].data(), texts[4].data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  int error = posix_spawn_file_actions_init(&actions);
  if (error != 0) return error;
  error = posix_spawnattr_init(&attributes);
  if (error == 0) {
    for (const auto& [from, to] : {std::pair(life, STDIN_FILENO), std::pair(told, STDOUT_FILENO)}) {
      if (error == 0) error = posix_spawn_file_actions_adddup2(&actions, from, to);
    }
    if (error == 0) error = posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    if (error == 0) error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    if (error == 0) error = posix_spawn(pid, program.c_str(), &actions, &attributes, arguments.data(), environ);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Whether the other end says kWatching in time; false where it goes, or says something else.
bool AwaitWatching(int told) {
  const auto deadline = steady_clock::now() + kStartTimeout;
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd wanted{told, POLLIN, 0};
    const int ready = poll(&wanted, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    char byte = 0;
    const ssize_t got = read(told, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    return got == 1 && byte == kWatching;
  }
}

void Reap(pid_t pid) {
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClockGuard>> ClockGuard::Start(const std::string& program,
                                                              const std::string& record_folder, const std::string& uuid,
                                                              const std::string& owner) {
  const absl::StatusOr<Pipe> life = MakePipe();
  if (!life.ok()) return life.status();
  const absl::StatusOr<Pipe> told = MakePipe();
  if (!told.ok()) {
    close(life->read_end);
    close(life->write_end);
    return told.status();
  }
  pid_t pid = -1;
  const int error = Spawn(program, record_folder, uuid, owner, life->read_end, told->write_end, &pid);
  close(life->read_end);
  close(told->write_end);
  const bool watching = error == 0 && AwaitWatching(told->read_end);
  close(told->read_end);
  if (watching) return std::unique_ptr<ClockGuard>(new ClockGuard(pid, life->write_end));
  close(life->write_end);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("the clock's guard can't be started: ", std::strerror(error)));
  }
  kill(pid, SIGKILL);
  Reap(pid);
  return absl::UnavailableError("the clock's guard can't be started: it did not say that it watches");
}

ClockGuard::~ClockGuard() {
  close(life_);
  Reap(pid_);
}

bool ClockGuard::Watches() const {
  siginfo_t ended{};
  return waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != pid_;
}

int GuardClock(const std::string& record_folder, const std::string& uuid, const std::string& owner) {
  for (const int signal_number : {SIGHUP, SIGINT, SIGTERM, SIGPIPE}) {
    std::signal(signal_number, SIG_IGN);
  }
  if (write(STDOUT_FILENO, &kWatching, 1) != 1) return 1;
  char byte = 0;
  ssize_t got = 0;
  do {
    got = read(STDIN_FILENO, &byte, 1);
  } while (got > 0 || (got < 0 && errno == EINTR));
  absl::Status status;
  for (int tries = 0; tries < kTries; ++tries) {
    if (tries > 0) std::this_thread::sleep_for(kTryInterval);
    status = measure::RestoreClock(record_folder, uuid, owner);
    if (status.ok()) return 0;
  }
  std::fputs(absl::StrCat("kevald: the SM clock of ", PrintableText(uuid, 64),
                          ", which a kevald that has ended left locked, can't be given back: ",
                          PrintableText(status.message()), "; the next start tries again\n")
                 .c_str(),
             stderr);
  return 1;
}

}  // namespace keval::server
