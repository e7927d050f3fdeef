#include "server/kevald_main.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/file.h"
#include "base/large_memory.h"
#include "base/text.h"
#include "core/linear_logp/engine.h"
#include "server/build_info.h"
#include "server/caller_security.h"
#include "server/clock_guard.h"
#include "server/descriptor_watch.h"
#include "server/engine_backend.h"
#include "server/grpc/grpc_log.h"
#include "server/kevald.h"
#include "server/options.h"
#include "server/stop_signal.h"
#include "server/worker/worker_process.h"
#include "server/worker_round_collector.h"

namespace keval::server {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

int Complain(const absl::Status& status) {
  std::fputs(absl::StrCat("kevald: ", PrintableText(status.message()), "\n").c_str(), stderr);
  return status.code() == absl::StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

// Each connection is a descriptor, and Debian's gRPC stops listening when they run out.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

Platform TorchPlatform(const ServerOptions& options) {
  linear_logp::Devices devices = linear_logp::ListDevices();
  Platform platform;
  platform.devices = std::move(devices.devices);
  platform.device_note = std::move(devices.note);
  platform.variants = linear_logp::DescribeVariants();
  platform.build = MakeBuildInfo();
  platform.build.set_cuda(linear_logp::BuiltWithCuda());
  platform.build.set_torch_version(linear_logp::TorchVersion());
  platform.backends = [threads = options.cpu_threads](const linear_logp::DeviceDescription& device) {
    return EngineBackendFactory(device.device, threads);
  };
  platform.collectors = [program = options.worker_program,
                         counters = options.oom_counters]() -> std::unique_ptr<RoundCollector> {
    WorkerRoundCollector::Options collector;
    collector.worker_program = program;
    collector.oom_counters = counters;
    return std::make_unique<WorkerRoundCollector>(collector);
  };
  return platform;
}

// Jobs and contract checks run it; without it each of them would fail.
absl::Status CheckWorkerProgram(const ServerOptions& options) {
  const std::string path =
      options.worker_program.empty() ? ProgramBesideThisOne("keval-worker") : options.worker_program;
  if (access(path.c_str(), X_OK) == 0) return absl::OkStatus();
  return InvalidField("--worker_program", path, "a program that can be run");
}

// A file that was named and tells nothing would make every such kill somebody's; the default one may be absent.
absl::Status CheckOomCounters(const ServerOptions& options) {
  if (worker::KernelOomKills(options.oom_counters).has_value()) return absl::OkStatus();
  if (options.oom_counters == worker::kMachineOomCounters) {
    spdlog::warn("{} has no oom_kill: a worker that the kernel kills for want of memory is told as killed by somebody",
                 options.oom_counters);
    return absl::OkStatus();
  }
  return InvalidField("--oom_counters", options.oom_counters, "a file with a line \"oom_kill N\"");
}

int Serve(const ServerOptions& options) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt("kevald"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc);
  spdlog::set_level(spdlog::level::from_str(options.log_level));
  RouteGrpcLog();
  if (absl::Status status = StopSignal::Install(); !status.ok()) return Complain(status);
  if (!options.ready_file.empty()) unlink(options.ready_file.c_str());  // An earlier server's would mislead.
  if (options.metrics_asked) spdlog::warn("--metrics_listen: this version serves no metrics; none are served");

  absl::StatusOr<std::unique_ptr<CallerSecurity>> security = CallerSecurity::Open(options);
  if (!security.ok()) return Complain(security.status());
  const Platform platform = TorchPlatform(options);
  if (!platform.device_note.empty()) spdlog::warn("{}", PrintableText(platform.device_note));
  absl::StatusOr<std::unique_ptr<Kevald>> kevald =
      Kevald::Start(options, platform, security->get(), (*security)->tls());
  if (!kevald.ok()) return Complain(kevald.status());
  const std::string ready = ReadyText((*kevald)->addresses(), getpid());
  if (!options.ready_file.empty()) {
    if (absl::Status status = WriteReadyFile(options.ready_file, ready); !status.ok()) return Complain(status);
  }
  spdlog::info("serving {}", PrintableText(ready.substr(0, ready.size() - 1)));

  DescriptorWatch descriptors;
  while (!StopSignal::Wait(std::chrono::milliseconds(500)) && !(*kevald)->device_lost()) {
    (*kevald)->Tidy();
    (*security)->Refresh();
    descriptors.Tidy();
  }
  const bool lost = (*kevald)->device_lost();
  if (lost) {
    spdlog::error("a device was lost: exiting, so that a fresh process takes it up");
  } else {
    spdlog::info("draining");
  }
  if (!options.ready_file.empty()) unlink(options.ready_file.c_str());
  (*kevald)->Drain();
  spdlog::info("stopped");
  return lost ? kExitFailed : 0;
}

}  // namespace

int KevaldMain(const std::vector<std::string>& arguments) {
  if (arguments.size() == 4 && arguments[0] == kGuardClockFlag) {
    return GuardClock(arguments[1], arguments[2], arguments[3]);
  }
  const bool tuned = TuneAllocator();
  RaiseDescriptorLimit();
  absl::StatusOr<CommandLine> line = ParseCommandLine(arguments);
  if (!line.ok()) return Complain(line.status());
  switch (line->action) {
    case CommandLine::Action::kHelp:
      std::fputs(HelpText().c_str(), stdout);
      return 0;
    case CommandLine::Action::kVersion:
      std::fputs(absl::StrCat("kevald ", MakeBuildInfo().version(), " ", MakeBuildInfo().commit(), "\n").c_str(),
                 stdout);
      return 0;
    case CommandLine::Action::kServe:
      break;
  }
  if (absl::Status status = CheckWorkerProgram(line->options); !status.ok()) return Complain(status);
  if (absl::Status status = CheckOomCounters(line->options); !status.ok()) return Complain(status);
  if (!tuned) spdlog::warn("the allocator refused its settings: large transfers will be slow");
  return Serve(line->options);
}

}  // namespace keval::server
