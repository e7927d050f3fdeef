#include "server/worker/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/mutex.h"
#include "base/number.h"
#include "base/text.h"
#include "server/worker/worker_main.h"

namespace keval::worker {
namespace {

constexpr std::chrono::milliseconds kTick{50};
constexpr std::chrono::seconds kBurialPatience{10};  // A crash may take a while to unmap tens of GiB.
constexpr std::size_t kTailBytes = 4096;

// What would make a worker compute or take time otherwise than the report says: other allocators, precision, thread
// pools, instruction sets, kernels, launches. Prefixes; docs/measuring.md names them.
constexpr absl::string_view kNotInherited[] = {"MALLOC_",
                                               "GLIBC_TUNABLES=",
                                               "LD_PRELOAD=",
                                               "OMP_",
                                               "GOMP_",
                                               "MKL_",
                                               "KMP_",
                                               "DNNL_",
                                               "ONEDNN_",
                                               "ATEN_",
                                               "TORCH_",
                                               "PYTORCH_",
                                               "CUBLAS",
                                               "CUDNN_",
                                               "NVIDIA_TF32_OVERRIDE=",
                                               "CUDA_AUTO_BOOST=",
                                               "CUDA_DEVICE_MAX_CONNECTIONS=",
                                               "CUDA_FORCE_PTX_JIT=",
                                               "CUDA_LAUNCH_BLOCKING=",
                                               "CUDA_MODULE_LOADING="};

std::vector<std::string> ChildEnvironment(int threads) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const absl::string_view variable(*entry);
    bool kept = true;
    for (const absl::string_view prefix : kNotInherited) {
      kept = kept && !absl::StartsWith(variable, prefix);
    }
    if (kept) {
      variables.emplace_back(variable);
    }
  }
  variables.push_back(absl::StrCat("OMP_NUM_THREADS=", threads));
  variables.push_back(absl::StrCat("MKL_NUM_THREADS=", threads));
  return variables;
}

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts->size() + 1);
  for (std::string& text : *texts) {
    pointers.push_back(text.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

std::string SignalText(int signal_number) {
  const char* const name = sigabbrev_np(signal_number);
  return name == nullptr ? absl::StrCat("signal ", signal_number) : absl::StrCat("SIG", name);
}

// Workers that live, in this process.
class LiveWorkers {
 public:
  static LiveWorkers& Get() {
    static LiveWorkers workers;
    return workers;
  }
  void Add(pid_t pid) {
    MutexLock lock(&mutex_);
    pids_.insert(pid);
  }
  void Remove(pid_t pid) {
    MutexLock lock(&mutex_);
    pids_.erase(pid);
  }
  std::vector<int> Ids() {
    MutexLock lock(&mutex_);
    return {pids_.begin(), pids_.end()};
  }

 private:
  LiveWorkers() = default;
  Mutex mutex_;
  std::set<pid_t> pids_ ABSL_GUARDED_BY(mutex_);
};

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

class SpawnPlan {
 public:
  SpawnPlan() {
    Note(posix_spawn_file_actions_init(&actions_));
    Note(posix_spawnattr_init(&attributes_));
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  // 0, or the first error. `running` is above the descriptors that the child finds things on, so that none is closed
  // before its turn.
  int Run(const std::string& program, int threads, int control, int output, int running, pid_t* pid) {
    Note(posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0));
    Note(posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO));
    Note(posix_spawn_file_actions_adddup2(&actions_, output, STDERR_FILENO));
    Note(posix_spawn_file_actions_adddup2(&actions_, control, kControlFd));
    Note(posix_spawn_file_actions_adddup2(&actions_, running, kRunningFd));
    Note(posix_spawn_file_actions_addclosefrom_np(&actions_, kRunningFd + 1));
    sigset_t all;
    sigset_t none;
    sigfillset(&all);
    sigemptyset(&none);
    Note(posix_spawnattr_setsigdefault(&attributes_, &all));
    Note(posix_spawnattr_setsigmask(&attributes_, &none));
    Note(posix_spawnattr_setpgroup(&attributes_, 0));
    Note(
        posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP));
    if (error_ != 0) {
      return error_;
    }
    std::vector<std::string> arguments = {program, absl::StrCat(getpid())};
    std::vector<std::string> environment = ChildEnvironment(threads);
    return posix_spawn(pid, program.c_str(), &actions_, &attributes_, Pointers(&arguments).data(),
                       Pointers(&environment).data());
  }

 private:
  void Note(int error) { error_ = error_ == 0 ? error : error_; }

  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
  int error_ = 0;
};

}  // namespace

std::optional<std::int64_t> KernelOomKills(const std::string& counters) {
  std::ifstream file(counters);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, ' ');
    if (parts.size() == 2 && parts[0] == "oom_kill") {
      return ParseInt64(parts[1]);
    }
  }
  return std::nullopt;
}

std::vector<int> OwnProcessIds() {
  std::vector<int> ids = LiveWorkers::Get().Ids();
  ids.push_back(getpid());
  return ids;
}

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Spawn(const std::string& program, int threads,
                                                                    std::string oom_counters) {
  std::array<int, 2> sockets{};
  std::array<int, 2> pipes{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    return absl::UnavailableError(absl::StrCat("no control socket: ", std::strerror(errno)));
  }
  Descriptor control(sockets[0]);
  const Descriptor child_control(sockets[1]);
  if (pipe2(pipes.data(), O_CLOEXEC) != 0) {
    return absl::UnavailableError(absl::StrCat("no output pipe: ", std::strerror(errno)));
  }
  Descriptor output(pipes[0]);
  const Descriptor child_output(pipes[1]);
  fcntl(output.get(), F_SETFL, O_NONBLOCK);
  absl::StatusOr<RunningPage> running = RunningPage::Create();
  if (!running.ok()) {
    return running.status();
  }
  pid_t pid = -1;
  SpawnPlan plan;
  const int error = plan.Run(program, threads, child_control.get(), child_output.get(), running->fd(), &pid);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("keval-worker can't be started: ", std::strerror(error)));
  }
  return std::unique_ptr<WorkerProcess>(
      new WorkerProcess(pid, control.Release(), output.Release(), *std::move(running), std::move(oom_counters)));
}

WorkerProcess::WorkerProcess(pid_t pid, int control, int output, RunningPage running, std::string oom_counters)
    : pid_(pid),
      control_(control),
      output_(output),
      running_(std::move(running)),
      oom_counters_(std::move(oom_counters)),
      oom_kills_before_(KernelOomKills(oom_counters_)) {
  LiveWorkers::Get().Add(pid_);
}

WorkerProcess::~WorkerProcess() {
  Kill();
  close(control_);
  close(output_);
}

void WorkerProcess::Kill() {
  if (reaped_) {
    return;
  }
  kill(-pid_, SIGKILL);  // Its whole group: an arm may have started helpers.
  siginfo_t ended{};
  while (waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  LiveWorkers::Get().Remove(pid_);  // It holds nothing on the device any more, and its number is still its own.
  while (waitpid(pid_, &wait_status_, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
}

void WorkerProcess::Send(const Request& request) const {
  // Small, and the worker reads: it fits the socket's buffer. An error means that the worker is gone.
  BlockingChannel(control_).Write(request).IgnoreError();
}

void WorkerProcess::DrainOutput() {
  std::array<char, 4096> chunk;
  for (ssize_t n = read(output_, chunk.data(), chunk.size()); n > 0; n = read(output_, chunk.data(), chunk.size())) {
    output_tail_.append(chunk.data(), static_cast<std::size_t>(n));
    if (output_tail_.size() > kTailBytes) {
      output_tail_.erase(0, output_tail_.size() - kTailBytes);
    }
  }
}

std::string WorkerProcess::LastWords() const {
  const absl::string_view text = absl::StripAsciiWhitespace(output_tail_);
  constexpr std::size_t kShown = 512;
  return text.empty() ? ""
                      : absl::StrCat("; it last wrote: ",
                                     PrintableText(text.substr(text.size() - std::min(text.size(), kShown)), kShown));
}

WorkerFault WorkerProcess::Blamed(std::string reason, const std::string& detail) const {
  using Blame = WorkerFault::Blame;
  switch (running_.mark()->load(std::memory_order_relaxed)) {
    case Running::kArm:
      return {Blame::kArm, std::move(reason), detail};
    case Running::kBase:
      return {Blame::kBase, std::move(reason), absl::StrCat("in base, which it runs to compare with, ", detail)};
    default:
      return {Blame::kHarness, std::move(reason), absl::StrCat("in keval's own code ", detail)};
  }
}

WorkerFault WorkerProcess::FaultOf(const Failure& failure) const {
  using Blame = WorkerFault::Blame;
  const std::string detail = PrintableText(failure.detail(), 1024);
  switch (failure.reason()) {
    case Failure::OUT_OF_MEMORY:
      return Blamed("OUT_OF_MEMORY", absl::StrCat("ran out of memory: ", detail));
    case Failure::ILLEGAL_ACCESS:
      return Blamed("ILLEGAL_ACCESS", absl::StrCat("poisoned its device context: ", detail));
    case Failure::DEVICE_LOST:
      return {Blame::kDevice, "DEVICE_LOST", absl::StrCat("lost the device: ", detail)};
    case Failure::FALLBACK:
      return {Blame::kArm, "FALLBACK", absl::StrCat("fell back: ", detail), true};
    case Failure::UNSUPPORTED:
      return {Blame::kArm, "UNSUPPORTED", absl::StrCat("can't do this: ", detail)};
    case Failure::BAD_REQUEST:
      return {Blame::kHarness, "PROTOCOL_ERROR", absl::StrCat("refused a request: ", detail)};
    case Failure::RAISED:
    case Failure::REASON_UNSPECIFIED:
      return Blamed("CRASHED", absl::StrCat("raised an error: ", detail));
    default:
      if (!Failure::Reason_IsValid(failure.reason())) {
        return {Blame::kHarness, "PROTOCOL_ERROR", "gave a reason for its failure that there is not"};
      }
      return {Blame::kArm, Failure::Reason_Name(failure.reason()), absl::StrCat("gave a wrong result: ", detail), true};
  }
}

absl::StatusOr<WorkerProcess::Answer> WorkerProcess::Receive(std::chrono::milliseconds timeout, const Check& check) {
  using Blame = WorkerFault::Blame;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    Reply reply;
    const absl::StatusOr<bool> whole = decoder_.Next(&reply);
    if (!whole.ok()) {
      Kill();
      return WorkerFault{Blame::kHarness, "PROTOCOL_ERROR", absl::StrCat("sent ", whole.status().message())};
    }
    if (*whole) {
      if (!reply.has_failure()) {
        return reply;
      }
      DrainOutput();
      return FaultOf(reply.failure());
    }
    if (check != nullptr) {
      if (absl::Status status = check(); !status.ok()) {
        return status;
      }
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      Kill();
      DrainOutput();
      return Blamed("HUNG",
                    absl::StrCat("did not answer within ", FixedText(std::chrono::duration<double>(timeout).count(), 1),
                                 " s and was killed", LastWords()));
    }
    std::array<pollfd, 2> fds = {{{control_, POLLIN, 0}, {output_, POLLIN, 0}}};
    if (output_closed_) {
      fds[1].fd = -1;
    }
    poll(fds.data(), fds.size(), static_cast<int>(kTick.count()));
    if ((fds[1].revents & POLLIN) != 0) {
      DrainOutput();
    } else if (fds[1].revents != 0) {
      output_closed_ = true;  // Else poll would return at once, every time.
    }
    // Asked first: what it wrote before its end is still read. A helper that it left may hold the socket open.
    const bool ended = HasEnded();
    std::array<char, 65536> chunk;
    const ssize_t n = recv(control_, chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (n > 0) {
      decoder_.Append(chunk.data(), static_cast<std::size_t>(n));
    } else if (ended || n == 0 || (errno != EAGAIN && errno != EINTR)) {
      return Bury();
    }
  }
}

bool WorkerProcess::HasEnded() const {
  siginfo_t ended{};
  const int result = waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT);
  return result == 0 ? ended.si_pid == pid_ : errno == ECHILD;  // Somebody else has reaped it.
}

WorkerFault WorkerProcess::Bury() {
  using Blame = WorkerFault::Blame;
  const auto deadline = std::chrono::steady_clock::now() + kBurialPatience;
  while (!reaped_) {
    if (HasEnded()) {
      Kill();  // Helpers that it may have left; its number is its own, and its end what it was, until it is reaped.
    } else if (std::chrono::steady_clock::now() >= deadline) {
      Kill();
      DrainOutput();
      return {Blame::kHarness, "PROTOCOL_ERROR", absl::StrCat("closed its control socket and went on", LastWords())};
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  DrainOutput();
  if (WIFEXITED(wait_status_)) {
    return Blamed("CRASHED", absl::StrCat("exited with code ", WEXITSTATUS(wait_status_), LastWords()));
  }
  const int signal_number = WTERMSIG(wait_status_);
  const std::string signal_text = SignalText(signal_number);
  if (signal_number == SIGKILL && oom_kills_before_.has_value() && KernelOomKills(oom_counters_) > oom_kills_before_) {
    // The kernel picks the largest process, not the one at fault: the machine's, not the arm's.
    return {Blame::kInfrastructure, "KILLED_BY_KERNEL",
            absl::StrCat("was killed (SIGKILL) while the kernel was killing for want of memory", LastWords())};
  }
  if (signal_number == SIGKILL || signal_number == SIGTERM || signal_number == SIGINT || signal_number == SIGHUP) {
    return {Blame::kInfrastructure, "KILLED", absl::StrCat("was killed from outside (", signal_text, ")", LastWords())};
  }
  return Blamed("CRASHED", absl::StrCat("died of ", signal_text, LastWords()));
}

}  // namespace keval::worker
