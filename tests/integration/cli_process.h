// Runs the keval program as a user does, in a folder of its own, against a server or without one.
#ifndef KEVAL_TESTS_INTEGRATION_CLI_PROCESS_H_
#define KEVAL_TESTS_INTEGRATION_CLI_PROCESS_H_

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace keval::test_support {

struct CliResult {
  int code = -1;  // 128 + signal where one killed it; -1: it had to be killed after the timeout.
  std::string out;
  std::string err;
};

// A keval that is running; the destructor kills it. One for each test's thread.
class CliProcess {
 public:
  // `environment` is added to this process's; an empty value takes a variable out. Output goes to files in `folder`.
  CliProcess(const std::string& folder, std::vector<std::string> arguments,
             const std::map<std::string, std::string>& environment);
  ~CliProcess();
  CliProcess(const CliProcess&) = delete;
  CliProcess& operator=(const CliProcess&) = delete;

  void Signal(int signal) const;
  std::string Err() const;  // So far.
  CliResult Wait(absl::Duration timeout);

 private:
  const std::string folder_;
  pid_t pid_ = -1;
};

// Starts and waits.
CliResult RunCli(const std::string& folder, std::vector<std::string> arguments,
                 const std::map<std::string, std::string>& environment = {});

std::string ReadText(const std::string& path);

}  // namespace keval::test_support

#endif  // KEVAL_TESTS_INTEGRATION_CLI_PROCESS_H_
