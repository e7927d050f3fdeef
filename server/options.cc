#include "server/options.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/field_error.h"
#include "base/number.h"
#include "base/text.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7400",
          "control addresses: host:port, [v6]:port or unix:/abs/path; repeated or separated by commas");
ABSL_FLAG(std::string, bulk_listen, "", "address for large transfers; default 127.0.0.1:7401, or none");
ABSL_FLAG(std::string, health_listen, "", "plaintext address that serves health only; default 127.0.0.1:7402, or none");
ABSL_FLAG(std::string, metrics_listen, "none", "address for metrics; this version serves none");
ABSL_FLAG(std::string, advertise_bulk, "", "whole bulk address to tell clients, where they reach it by another name");
ABSL_FLAG(std::string, data_dir, "", "folder for jobs; default $XDG_STATE_HOME/keval or ~/.local/state/keval");
ABSL_FLAG(std::string, ready_file, "", "file to write once serving: addresses and process id as JSON");
ABSL_FLAG(bool, insecure, false, "serve off loopback even without TLS or without authentication");
ABSL_FLAG(std::string, tls_cert, "",
          "PEM file of the server's certificate and what leads to its root; then control and bulk over TCP are TLS. "
          "The TLS files and --token_file are read again when they change");
ABSL_FLAG(std::string, tls_key, "", "PEM file of its private key, unencrypted, which nobody else may read");
ABSL_FLAG(
    std::string, tls_client_ca, "",
    "PEM file of the CAs of client certificates, which then tell who calls; required unless --token_file is given");
ABSL_FLAG(std::string, token_file, "",
          "file of lines principal:token, which nobody else may read: a call with \"authorization: Bearer TOKEN\" is "
          "that principal's");
ABSL_FLAG(bool, unix_principals, false,
          "a caller over a Unix socket is uid:N, shown by a token from the socket PATH.token beside each");
ABSL_FLAG(std::string, gradient_devices, "", "devices that run gradients, e.g. cuda:0,cpu; default all");
ABSL_FLAG(std::string, benchmark_devices, "", "devices that run benchmark jobs; default all");
ABSL_FLAG(int, cpu_threads, 0, "threads of a gradient on the CPU; 0: one for each core");
ABSL_FLAG(std::string, worker_program, "", "path of keval-worker; default: beside kevald");
ABSL_FLAG(std::string, oom_counters, "/proc/vmstat",
          "file with a line \"oom_kill N\", the kernel's kills for want of memory: the machine's, or a control group's "
          "memory.events; tells them from other kills of a worker");
ABSL_FLAG(int, max_queued_requests, 64, "requests that may wait for a device");
ABSL_FLAG(std::int64_t, max_queued_bytes, 0, "bytes of requests in flight; 0: a quarter of the machine's memory");
ABSL_FLAG(std::int64_t, max_stored_tensor_bytes, 0,
          "bytes of stored tensors and sessions; 0: a quarter of the machine's memory");
ABSL_FLAG(std::int64_t, max_stored_tensor_bytes_per_caller, 0,
          "bytes of one principal's stored tensors and sessions; 0: no limit of its own");
ABSL_FLAG(std::int64_t, max_stored_tensors_per_caller, 10000, "stored tensors of one principal, however small");
ABSL_FLAG(std::int64_t, default_lease_seconds, 3600, "lease of a stored tensor or session that asks for none");
ABSL_FLAG(std::int64_t, max_lease_seconds, 86400, "longest lease of a stored tensor or session");
ABSL_FLAG(int, max_threads, 256, "threads that answer calls");
ABSL_FLAG(int, max_queued_jobs, 64, "benchmark jobs that may wait");
ABSL_FLAG(int, max_series, 64, "series of one benchmark job");
ABSL_FLAG(std::string, max_job_device_seconds, "7200", "longest that a benchmark job may use a device");
ABSL_FLAG(int, lock_sm_clock_mhz, 0,
          "SM clock of a GPU that no other process uses, while a job runs on it; needs the right to set clocks; 0: "
          "left alone");
ABSL_FLAG(std::int64_t, job_retention_days, 90, "how long a job is kept after its end; 0: for ever");
ABSL_FLAG(std::int64_t, max_stored_jobs, 10000, "jobs to keep; beyond, the oldest that have ended go; 0: any number");
ABSL_FLAG(int, stall_timeout_seconds, 60, "how long a stream's peer may neither send bytes nor read");
ABSL_FLAG(int, drain_grace_seconds, 20, "how long running calls may take after SIGTERM");
ABSL_FLAG(std::string, log_level, "info", "trace, debug, info, warn, error or off");

namespace keval::server {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr int kBulkPort = 7401;
constexpr int kHealthPort = 7402;

// Our own flags by name; Abseil's libraries define some more (e.g. for logging) that are none of kevald's business.
std::map<std::string, absl::CommandLineFlag*> OwnFlags() {
  std::map<std::string, absl::CommandLineFlag*> own;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (absl::EndsWith(flag->Filename(), "server/options.cc")) own.emplace(std::string(name), flag);
  }
  return own;
}

absl::Status BadLine(absl::string_view what) { return absl::InvalidArgumentError(what); }

// "--name=value", "--name value", "--name" and "--noname" for booleans. Abseil's own parser exits with 1 on an error
// and keeps the last of repeated flags; kevald's exits with 2 and joins repeated --listen.
absl::StatusOr<CommandLine::Action> SetFlags(const std::vector<std::string>& arguments) {
  const std::map<std::string, absl::CommandLineFlag*> own = OwnFlags();
  std::vector<std::string> listen;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view argument = arguments[i];
    if (argument == "--help" || argument == "-h") return CommandLine::Action::kHelp;
    if (argument == "--version") return CommandLine::Action::kVersion;
    if (!absl::ConsumePrefix(&argument, "--") || argument.empty()) {
      return BadLine(absl::StrCat("unexpected argument ", PrintableText(arguments[i], 256), "; see --help"));
    }
    const std::size_t equals = argument.find('=');
    std::string name(argument.substr(0, equals));
    std::replace(name.begin(), name.end(), '-', '_');
    std::optional<std::string> value;
    if (equals != absl::string_view::npos) value = std::string(argument.substr(equals + 1));
    auto flag = own.find(name);
    if (flag == own.end() && absl::StartsWith(name, "no") && !value.has_value()) {
      flag = own.find(name.substr(2));
      if (flag != own.end() && !flag->second->IsOfType<bool>()) flag = own.end();
      value = "false";
    }
    if (flag == own.end()) return BadLine(absl::StrCat("unknown flag --", PrintableText(name, 256), "; see --help"));
    if (!value.has_value() && flag->second->IsOfType<bool>()) value = "true";
    if (!value.has_value()) {
      if (i + 1 == arguments.size()) return BadLine(absl::StrCat("--", flag->first, " needs a value"));
      value = arguments[++i];
    }
    if (flag->first == "listen") {
      listen.push_back(*value);
      value = absl::StrJoin(listen, ",");
    }
    std::string error;
    if (!flag->second->ParseFrom(*value, &error)) {
      return BadLine(absl::StrCat("--", flag->first, ": ", PrintableText(*value, 256), " is not a value for it"));
    }
  }
  return CommandLine::Action::kServe;
}

absl::StatusOr<std::optional<ListenAddress>> OptionalAddress(absl::string_view flag, const std::string& text,
                                                             int default_port) {
  if (text == "none") return std::nullopt;
  if (text.empty()) return ListenAddress{kLoopback, default_port, ""};
  absl::StatusOr<ListenAddress> address = ParseListenAddress(flag, text);
  if (!address.ok()) return address.status();
  return *std::move(address);
}

// Off loopback callers must be told apart, and their tokens must not be read on the way.
absl::Status CheckReach(absl::string_view flag, const ListenAddress& address, const ServerOptions& options) {
  const bool protected_there =
      !options.tls_cert.empty() && !(options.tls_client_ca.empty() && options.token_file.empty());
  if (options.insecure || protected_there || IsLocal(address)) return absl::OkStatus();
  return BadLine(absl::StrCat(flag, ": ", PrintableText(address.Text(), 256),
                              " can be reached from other machines: give --tls_cert and --tls_key, and --token_file or "
                              "--tls_client_ca to authenticate callers, or say --insecure to serve there without"));
}

absl::Status SetSecurity(ServerOptions* options) {
  options->insecure = absl::GetFlag(FLAGS_insecure);
  options->tls_cert = absl::GetFlag(FLAGS_tls_cert);
  options->tls_key = absl::GetFlag(FLAGS_tls_key);
  options->tls_client_ca = absl::GetFlag(FLAGS_tls_client_ca);
  options->token_file = absl::GetFlag(FLAGS_token_file);
  options->unix_principals = absl::GetFlag(FLAGS_unix_principals);
  if (options->tls_cert.empty() != options->tls_key.empty()) {
    return BadLine("--tls_cert and --tls_key: one is given without the other");
  }
  if (options->tls_cert.empty() && !options->tls_client_ca.empty()) {
    return BadLine("--tls_client_ca: needs --tls_cert and --tls_key");
  }
  for (const ListenAddress& address : options->listen) {
    if (absl::Status status = CheckReach("--listen", address, *options); !status.ok()) return status;
  }
  if (!options->bulk_listen.has_value()) return absl::OkStatus();
  return CheckReach("--bulk_listen", *options->bulk_listen, *options);
}

absl::Status SetAddresses(ServerOptions* options) {
  for (const absl::string_view text : absl::StrSplit(absl::GetFlag(FLAGS_listen), ',', absl::SkipWhitespace())) {
    absl::StatusOr<ListenAddress> address = ParseListenAddress("--listen", text);
    if (!address.ok()) return address.status();
    options->listen.push_back(*std::move(address));
  }
  if (options->listen.empty()) return BadLine("--listen: no address is given");
  const bool any_port = std::any_of(options->listen.begin(), options->listen.end(),
                                    [](const ListenAddress& a) { return !a.is_unix() && a.port == 0; });
  absl::StatusOr<std::optional<ListenAddress>> bulk =
      OptionalAddress("--bulk_listen", absl::GetFlag(FLAGS_bulk_listen), any_port ? 0 : kBulkPort);
  if (!bulk.ok()) return bulk.status();
  absl::StatusOr<std::optional<ListenAddress>> health =
      OptionalAddress("--health_listen", absl::GetFlag(FLAGS_health_listen), any_port ? 0 : kHealthPort);
  if (!health.ok()) return health.status();
  absl::StatusOr<std::optional<ListenAddress>> metrics =
      OptionalAddress("--metrics_listen", absl::GetFlag(FLAGS_metrics_listen), 0);
  if (!metrics.ok()) return metrics.status();
  options->bulk_listen = *std::move(bulk);
  options->health_listen = *std::move(health);
  options->metrics_asked = metrics->has_value();
  return absl::OkStatus();
}

// Clients dial it and speak of it only where it doesn't answer, so a slip would just cost them their speed. REQUIRES
// the listening addresses.
absl::Status SetAdvertisedBulk(ServerOptions* options) {
  constexpr absl::string_view kFlag = "--advertise_bulk";
  const std::string text = absl::GetFlag(FLAGS_advertise_bulk);
  if (text.empty()) return absl::OkStatus();
  absl::StatusOr<ListenAddress> address = ParseListenAddress(kFlag, text);
  if (!address.ok()) return address.status();
  if (!address->is_unix() && address->port == 0) return InvalidField(kFlag, text, "with a port in [1, 65535]");
  const bool is_host = std::all_of(address->host.begin(), address->host.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(".-_:", c);
  });
  if (!is_host) return InvalidField(kFlag, text, "with a host's name or address before its port");
  if (!options->bulk_listen.has_value()) return InvalidField(kFlag, text, "absent with --bulk_listen none");
  options->advertise_bulk = text;
  return absl::OkStatus();
}

absl::Status SetDataDir(ServerOptions* options) {
  options->data_dir = absl::GetFlag(FLAGS_data_dir);
  if (!options->data_dir.empty()) return absl::OkStatus();
  const char* const state = std::getenv("XDG_STATE_HOME");
  const char* const home = std::getenv("HOME");
  if (state != nullptr && *state == '/') {
    options->data_dir = absl::StrCat(state, "/keval");
  } else if (home != nullptr && *home == '/') {
    options->data_dir = absl::StrCat(home, "/.local/state/keval");
  } else {
    return BadLine("--data_dir: must be given where neither XDG_STATE_HOME nor HOME is set");
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status CheckRange(absl::string_view flag, T value, T least, T most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return InvalidField(flag, absl::StrCat(value), absl::StrCat("in [", least, ", ", most, "]"));
}

std::vector<std::string> Names(const std::string& text) { return absl::StrSplit(text, ',', absl::SkipWhitespace()); }

absl::Status SetLimits(ServerOptions* options) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
  constexpr std::int64_t kYearSeconds = std::int64_t{366} * 86400;
  options->cpu_threads = absl::GetFlag(FLAGS_cpu_threads);
  options->max_queued_requests = absl::GetFlag(FLAGS_max_queued_requests);
  options->max_queued_bytes = absl::GetFlag(FLAGS_max_queued_bytes);
  options->max_stored_tensor_bytes = absl::GetFlag(FLAGS_max_stored_tensor_bytes);
  options->max_stored_tensor_bytes_per_caller = absl::GetFlag(FLAGS_max_stored_tensor_bytes_per_caller);
  options->max_stored_tensors_per_caller = absl::GetFlag(FLAGS_max_stored_tensors_per_caller);
  options->default_lease_seconds = absl::GetFlag(FLAGS_default_lease_seconds);
  options->max_lease_seconds = absl::GetFlag(FLAGS_max_lease_seconds);
  options->max_threads = absl::GetFlag(FLAGS_max_threads);
  options->max_queued_jobs = absl::GetFlag(FLAGS_max_queued_jobs);
  options->max_series = absl::GetFlag(FLAGS_max_series);
  options->job_retention_days = absl::GetFlag(FLAGS_job_retention_days);
  options->max_stored_jobs = absl::GetFlag(FLAGS_max_stored_jobs);
  options->stall_timeout_seconds = absl::GetFlag(FLAGS_stall_timeout_seconds);
  options->lock_sm_clock_mhz = absl::GetFlag(FLAGS_lock_sm_clock_mhz);
  options->drain_grace_seconds = absl::GetFlag(FLAGS_drain_grace_seconds);
  // Text, since Abseil reads a double as the process's locale would.
  const std::string seconds = absl::GetFlag(FLAGS_max_job_device_seconds);
  options->max_job_device_seconds = ParseDouble(seconds).value_or(-1);
  if (!(options->max_job_device_seconds > 0)) {
    return InvalidField("--max_job_device_seconds", seconds, "a positive number");
  }
  absl::Status status = CheckRange("--cpu_threads", options->cpu_threads, 0, 4096);
  status.Update(CheckRange("--max_queued_requests", options->max_queued_requests, 1, 1000000));
  status.Update(CheckRange<std::int64_t>("--max_queued_bytes", options->max_queued_bytes, 0, kMostBytes));
  status.Update(CheckRange<std::int64_t>("--max_stored_tensor_bytes", options->max_stored_tensor_bytes, 0, kMostBytes));
  status.Update(CheckRange<std::int64_t>("--max_stored_tensor_bytes_per_caller",
                                         options->max_stored_tensor_bytes_per_caller, 0, kMostBytes));
  status.Update(CheckRange<std::int64_t>("--max_stored_tensors_per_caller", options->max_stored_tensors_per_caller, 1,
                                         10'000'000));
  status.Update(CheckRange<std::int64_t>("--max_lease_seconds", options->max_lease_seconds, 1, kYearSeconds));
  status.Update(CheckRange<std::int64_t>("--default_lease_seconds", options->default_lease_seconds, 1,
                                         std::max<std::int64_t>(options->max_lease_seconds, 1)));
  status.Update(CheckRange("--max_threads", options->max_threads, 16, 65536));
  status.Update(CheckRange("--max_queued_jobs", options->max_queued_jobs, 1, 1000000));
  status.Update(CheckRange("--max_series", options->max_series, 1, 10000));
  status.Update(CheckRange("--lock_sm_clock_mhz", options->lock_sm_clock_mhz, 0, 10000));
  status.Update(CheckRange<std::int64_t>("--job_retention_days", options->job_retention_days, 0, 36500));
  status.Update(CheckRange<std::int64_t>("--max_stored_jobs", options->max_stored_jobs, 0, 100'000'000));
  status.Update(CheckRange("--stall_timeout_seconds", options->stall_timeout_seconds, 1, 86400));
  status.Update(CheckRange("--drain_grace_seconds", options->drain_grace_seconds, 0, 86400));
  return status;
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments) {
  CommandLine line;
  absl::StatusOr<CommandLine::Action> action = SetFlags(arguments);
  if (!action.ok()) return action.status();
  line.action = *action;
  if (line.action != CommandLine::Action::kServe) return line;
  ServerOptions& options = line.options;
  if (absl::Status status = SetAddresses(&options); !status.ok()) return status;
  if (absl::Status status = SetSecurity(&options); !status.ok()) return status;
  if (absl::Status status = SetDataDir(&options); !status.ok()) return status;
  if (absl::Status status = SetLimits(&options); !status.ok()) return status;
  if (absl::Status status = SetAdvertisedBulk(&options); !status.ok()) return status;
  options.ready_file = absl::GetFlag(FLAGS_ready_file);
  options.gradient_devices = Names(absl::GetFlag(FLAGS_gradient_devices));
  options.benchmark_devices = Names(absl::GetFlag(FLAGS_benchmark_devices));
  options.worker_program = absl::GetFlag(FLAGS_worker_program);
  options.oom_counters = absl::GetFlag(FLAGS_oom_counters);
  options.log_level = absl::GetFlag(FLAGS_log_level);
  constexpr const char* kLevels[] = {"trace", "debug", "info", "warn", "error", "off"};
  if (std::find(std::begin(kLevels), std::end(kLevels), options.log_level) == std::end(kLevels)) {
    return InvalidField("--log_level", options.log_level, absl::StrCat("one of ", absl::StrJoin(kLevels, ", ")));
  }
  return line;
}

std::string HelpText() {
  std::string text = "kevald: serves linear_logp gradients and paired benchmark jobs\n\n";
  for (const auto& [name, flag] : OwnFlags()) {
    absl::StrAppend(&text, "  --", name, " (", flag->DefaultValue().empty() ? "empty" : flag->DefaultValue(),
                    ")\n      ", flag->Help(), "\n");
  }
  return text;
}

}  // namespace keval::server
