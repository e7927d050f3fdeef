#include "tests/support/server_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace keval::test_support {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// stderr and stdout go to `log`.
absl::StatusOr<pid_t> Spawn(std::vector<std::string> command, const std::map<std::string, std::string>& added,
                            const std::string& log) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!added.contains(text.substr(0, text.find('=')))) environment.push_back(text);
  }
  for (const auto& [name, value] : added) environment.push_back(absl::StrCat(name, "=", value));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 2, 1);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, command[0].c_str(), &actions, nullptr, Pointers(&command).data(),
                                Pointers(&environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return absl::NotFoundError(absl::StrCat("cannot start ", command[0], ": error ", error));
  return pid;
}

std::optional<int> WaitFor(pid_t pid, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == pid) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (absl::Now() > deadline) return std::nullopt;
    absl::SleepFor(absl::Milliseconds(5));
  }
}

}  // namespace

absl::StatusOr<ServerProcess> ServerProcess::Start(const Options& options) {
  const std::string ready = absl::StrCat(options.folder, "/ready.json");
  std::error_code ignored;
  std::filesystem::remove(ready, ignored);
  std::vector<std::string> command = {options.program, "--data_dir", absl::StrCat(options.folder, "/data"),
                                      "--ready_file", ready};
  const bool says_listen = std::any_of(options.arguments.begin(), options.arguments.end(),
                                       [](const std::string& text) { return absl::StartsWith(text, "--listen"); });
  if (options.any_port && !says_listen) command.insert(command.end(), {"--listen", "127.0.0.1:0"});
  command.insert(command.end(), options.arguments.begin(), options.arguments.end());

  ServerProcess process;
  process.log_path_ = absl::StrCat(options.folder, "/log");
  absl::StatusOr<pid_t> pid = Spawn(std::move(command), options.environment, process.log_path_);
  if (!pid.ok()) return pid.status();
  process.pid_ = *pid;
  const absl::Time deadline = absl::Now() + options.start_timeout;
  while (!std::filesystem::exists(ready)) {
    if (const std::optional<int> code = process.Wait(absl::ZeroDuration()); code.has_value()) {
      return absl::FailedPreconditionError(absl::StrCat("kevald ended with ", *code, ": ", process.Log()));
    }
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat("kevald is not ready: ", process.Log()));
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
  if (absl::Status status = process.ReadReadyFile(ready); !status.ok()) return status;
  return process;
}

absl::Status ServerProcess::ReadReadyFile(const std::string& path) {
  const std::string text = ReadAll(path);
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) return absl::DataLossError(absl::StrCat("ready file is no JSON: ", text));
  const auto or_empty = [&](const char* key) {
    return json[key].is_string() ? json[key].get<std::string>() : std::string();
  };
  control_ = or_empty("control");
  bulk_ = or_empty("bulk");
  health_ = or_empty("health");
  for (const nlohmann::json& address : json["control_all"]) control_all_.push_back(address.get<std::string>());
  if (control_.empty() || json["pid"] != pid_) return absl::DataLossError(absl::StrCat("wrong ready file: ", text));
  return absl::OkStatus();
}

ServerProcess::ServerProcess(ServerProcess&& other) noexcept { *this = std::move(other); }

ServerProcess& ServerProcess::operator=(ServerProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(log_path_, other.log_path_);
  std::swap(control_, other.control_);
  std::swap(control_all_, other.control_all_);
  std::swap(bulk_, other.bulk_);
  std::swap(health_, other.health_);
  return *this;
}

ServerProcess::~ServerProcess() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  static_cast<void>(Wait(absl::Seconds(10)));
}

void ServerProcess::Signal(int signal) const { kill(pid_, signal); }

std::optional<int> ServerProcess::Wait(absl::Duration timeout) {
  if (pid_ < 0) return std::nullopt;
  const std::optional<int> code = WaitFor(pid_, timeout);
  if (code.has_value()) pid_ = -1;
  return code;
}

std::int64_t ServerProcess::ResidentBytes() const {
  std::ifstream statm(absl::StrCat("/proc/", pid_, "/statm"));
  std::int64_t total = 0;
  std::int64_t resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::string ServerProcess::Log() const { return ReadAll(log_path_); }

absl::StatusOr<Finished> RunToEnd(const std::string& program, const std::vector<std::string>& arguments,
                                  const std::string& folder, absl::Duration timeout) {
  std::vector<std::string> command = {program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const std::string log = absl::StrCat(folder, "/output");
  absl::StatusOr<pid_t> pid = Spawn(std::move(command), {}, log);
  if (!pid.ok()) return pid.status();
  const std::optional<int> code = WaitFor(*pid, timeout);
  if (!code.has_value()) {
    kill(*pid, SIGKILL);
    static_cast<void>(WaitFor(*pid, absl::Seconds(10)));
    return absl::DeadlineExceededError(absl::StrCat(program, " does not end: ", ReadAll(log)));
  }
  return Finished{*code, ReadAll(log)};
}

}  // namespace keval::test_support
