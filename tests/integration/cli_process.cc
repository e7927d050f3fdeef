#include "tests/integration/cli_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace keval::test_support {
namespace {

std::vector<std::string> Environment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!added.contains(text.substr(0, text.find('=')))) all.push_back(text);
  }
  for (const auto& [name, value] : added) {
    if (!value.empty()) all.push_back(absl::StrCat(name, "=", value));
  }
  return all;
}

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

CliProcess::CliProcess(const std::string& folder, std::vector<std::string> arguments,
                       const std::map<std::string, std::string>& environment)
    : folder_(folder) {
  std::vector<std::string> command = {KEVAL_BIN_DIR "/keval"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = Environment(environment);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const int flags = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, (folder_ + "/stdout").c_str(), flags, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, (folder_ + "/stderr").c_str(), flags, 0600);
  posix_spawn(&pid_, command[0].c_str(), &actions, nullptr, Pointers(&command).data(), Pointers(&variables).data());
  posix_spawn_file_actions_destroy(&actions);
}

CliProcess::~CliProcess() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void CliProcess::Signal(int signal) const { kill(pid_, signal); }

std::string CliProcess::Err() const { return ReadText(folder_ + "/stderr"); }

CliResult CliProcess::Wait(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  CliResult result;
  while (pid_ > 0 && absl::Now() < deadline) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      break;
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
  result.out = ReadText(folder_ + "/stdout");
  result.err = Err();
  return result;
}

CliResult RunCli(const std::string& folder, std::vector<std::string> arguments,
                 const std::map<std::string, std::string>& environment) {
  return CliProcess(folder, std::move(arguments), environment).Wait(absl::Seconds(60));
}

}  // namespace keval::test_support
