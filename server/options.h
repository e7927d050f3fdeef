// kevald's command line.
#ifndef KEVAL_SERVER_OPTIONS_H_
#define KEVAL_SERVER_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/listen_address.h"

namespace keval::server {

struct ServerOptions {  // NOLINT(clang-analyzer-optin.performance.Padding): by meaning.
  std::vector<ListenAddress> listen;
  std::optional<ListenAddress> bulk_listen;
  std::optional<ListenAddress> health_listen;
  bool metrics_asked = false;  // --metrics_listen names an address, which nothing serves yet.
  std::string advertise_bulk;
  std::string data_dir;
  std::string ready_file;
  bool insecure = false;
  std::string tls_cert;  // Empty: plaintext.
  std::string tls_key;
  std::string tls_client_ca;     // Empty: clients are asked for no certificate.
  std::string token_file;        // Empty: no tokens.
  bool unix_principals = false;  // Callers over Unix sockets get a token for their uid.

  std::vector<std::string> gradient_devices;   // Empty: all.
  std::vector<std::string> benchmark_devices;  // Empty: all.
  int cpu_threads = 0;
  std::string worker_program;
  std::string oom_counters = "/proc/vmstat";

  int max_queued_requests = 64;
  std::int64_t max_queued_bytes = 0;                    // 0: a quarter of the machine's memory.
  std::int64_t max_stored_tensor_bytes = 0;             // 0: a quarter of the machine's memory.
  std::int64_t max_stored_tensor_bytes_per_caller = 0;  // 0: no limit of its own.
  std::int64_t max_stored_tensors_per_caller = 10000;
  std::int64_t default_lease_seconds = 3600;
  std::int64_t max_lease_seconds = 86400;
  int max_threads = 256;
  int max_queued_jobs = 64;
  int max_series = 64;
  double max_job_device_seconds = 7200;
  int lock_sm_clock_mhz = 0;             // 0: never.
  std::int64_t job_retention_days = 90;  // 0: kept however old.
  std::int64_t max_stored_jobs = 10000;  // 0: any number.
  int stall_timeout_seconds = 60;
  int drain_grace_seconds = 20;
  std::string log_level = "info";

  // Whether every call must show who makes it.
  bool AuthenticatesCallers() const { return !token_file.empty() || !tls_client_ca.empty() || unix_principals; }
};

// What a command line asks for.
struct CommandLine {
  enum class Action : std::uint8_t { kServe, kHelp, kVersion };
  Action action = Action::kServe;
  ServerOptions options;
};

// INVALID_ARGUMENT with one line for a person: unknown flag, bad value, an address off loopback without
// TLS and authentication or --insecure, … .
// Sets the process's Abseil flags; call it once.
absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments);

// The text of --help.
std::string HelpText();

}  // namespace keval::server

#endif  // KEVAL_SERVER_OPTIONS_H_
