// A real kevald for tests: started on free ports in a folder of its own, waited for, ended with the object.
#ifndef KEVAL_TESTS_SUPPORT_SERVER_PROCESS_H_
#define KEVAL_TESTS_SUPPORT_SERVER_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace keval::test_support {

// Owner: one test. The destructor kills what still runs.
class ServerProcess {
 public:
  struct Options {
    std::string program;  // Path of kevald.
    std::string folder;   // Data directory, ready file and log go here; must exist and may be used again.
    std::vector<std::string> arguments;                   // Beside --data_dir and --ready_file.
    bool any_port = true;                                 // --listen 127.0.0.1:0, unless `arguments` say otherwise.
    std::map<std::string, std::string> environment = {};  // Added to this process's.
    absl::Duration start_timeout = absl::Seconds(60);
  };

  // Serves when it returns. FAILED_PRECONDITION with the log's text when it ended instead; DEADLINE_EXCEEDED.
  static absl::StatusOr<ServerProcess> Start(const Options& options);

  ServerProcess(ServerProcess&& other) noexcept;
  ServerProcess& operator=(ServerProcess&& other) noexcept;
  ~ServerProcess();

  // From the ready file.
  const std::string& control() const { return control_; }
  const std::vector<std::string>& control_all() const { return control_all_; }
  const std::string& bulk() const { return bulk_; }      // Empty: none.
  const std::string& health() const { return health_; }  // Empty: none.
  pid_t pid() const { return pid_; }

  void Signal(int signal) const;
  // The exit code, 128 + signal where one killed it; nullopt when it still runs after `timeout`.
  std::optional<int> Wait(absl::Duration timeout);
  // Resident set in bytes.
  std::int64_t ResidentBytes() const;
  // Everything it has written to stderr.
  std::string Log() const;

 private:
  ServerProcess() = default;
  absl::Status ReadReadyFile(const std::string& path);

  pid_t pid_ = -1;
  std::string log_path_;
  std::string control_;
  std::vector<std::string> control_all_;
  std::string bulk_;
  std::string health_;
};

// Runs `program` to its end: exit code (128 + signal) and stderr.
struct Finished {
  int code = 0;
  std::string err;
};
absl::StatusOr<Finished> RunToEnd(const std::string& program, const std::vector<std::string>& arguments,
                                  const std::string& folder, absl::Duration timeout);

}  // namespace keval::test_support

#endif  // KEVAL_TESTS_SUPPORT_SERVER_PROCESS_H_
