#include "server/kevald.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/field_error.h"
#include "server/proto_convert.h"
#include "server/tensor_frames.h"

namespace keval::server {
namespace {

// After the grace: what still runs is told to end, and stops at its next chunk or message.
constexpr std::chrono::milliseconds kEndCallsGrace{2000};
// Longer than the pauses between a training loop's tensors.
constexpr absl::Duration kKeepMemory = absl::Seconds(10);

std::int64_t OrQuarterOfMemory(std::int64_t bytes) {
  if (bytes > 0) return bytes;
  return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 4;
}

TensorStore::Options StoreOptions(const ServerOptions& options) {
  TensorStore::Options store;
  store.max_bytes = OrQuarterOfMemory(options.max_stored_tensor_bytes);
  if (options.max_stored_tensor_bytes_per_caller > 0) {
    store.max_bytes_per_principal = options.max_stored_tensor_bytes_per_caller;
  }
  store.max_tensors_per_principal = options.max_stored_tensors_per_caller;
  store.default_lease = absl::Seconds(options.default_lease_seconds);
  store.max_lease = absl::Seconds(options.max_lease_seconds);
  return store;
}

SessionStore::Options SessionOptions(const ServerOptions& options) {
  SessionStore::Options store;
  store.default_lease = absl::Seconds(options.default_lease_seconds);
  store.max_lease = absl::Seconds(options.max_lease_seconds);
  return store;
}

bool IsChosen(const std::vector<std::string>& chosen, const std::string& device) {
  return chosen.empty() || std::find(chosen.begin(), chosen.end(), device) != chosen.end();
}

}  // namespace

Kevald::Kevald(const ServerOptions& options, const Platform& platform)
    : options_(options),
      variants_(platform.variants),
      host_memory_(std::make_shared<HostMemoryPool>(OrQuarterOfMemory(0) / 2)),
      request_bytes_("memory for requests", OrQuarterOfMemory(options.max_queued_bytes)),
      tensor_store_(StoreOptions(options), host_memory_),
      session_store_(SessionOptions(options)) {}

Kevald::~Kevald() { Drain(); }

absl::StatusOr<std::unique_ptr<Kevald>> Kevald::Start(const ServerOptions& options, const Platform& platform,
                                                      const PrincipalSource* principals, TlsIdentity* tls) {
  auto kevald = absl::WrapUnique(new Kevald(options, platform));
  if (absl::Status status = kevald->ChooseDevices(platform); !status.ok()) return status;
  if (absl::Status status = kevald->StartExecutors(platform); !status.ok()) return status;
  const v1::ServerInfo info = kevald->FixedInfo(platform);
  if (absl::Status status = kevald->OpenJobs(platform, info); !status.ok()) return status;
  kevald->MakeHandlers(platform, info);
  FrontendOptions frontend_options;
  frontend_options.listen = options.listen;
  frontend_options.bulk_listen = options.bulk_listen;
  frontend_options.health_listen = options.health_listen;
  frontend_options.max_threads = options.max_threads;
  frontend_options.stall_timeout = std::chrono::seconds(options.stall_timeout_seconds);
  const Handlers handlers{kevald->linear_logp_handler_.get(), kevald->session_handler_.get(),
                          kevald->contract_handler_.get(),    kevald->tensor_handler_.get(),
                          kevald->server_info_handler_.get(), kevald->benchmark_handler_.get()};
  absl::StatusOr<std::unique_ptr<Frontend>> frontend =
      Frontend::Start(frontend_options, handlers, kevald->state_.get(), principals, tls);
  if (!frontend.ok()) return frontend.status();
  kevald->frontend_ = *std::move(frontend);
  kevald->server_info_handler_->SetBulkPort(kevald->frontend_->bulk_port());
  // Last: a job goes on only in a server that serves.
  if (absl::Status status = kevald->job_runner_->Start(); !status.ok()) return status;
  return kevald;
}

absl::Status Kevald::ChooseDevices(const Platform& platform) {
  std::vector<std::string> names;
  for (const linear_logp::DeviceDescription& description : platform.devices) {
    auto device = std::make_unique<Device>();
    device->description = description;
    device->name = ToProto(description).name();
    device->runs_gradients = IsChosen(options_.gradient_devices, device->name);
    device->runs_benchmarks = IsChosen(options_.benchmark_devices, device->name);
    names.push_back(device->name);
    devices_.push_back(std::move(device));
  }
  const auto check = [&](absl::string_view flag, const std::vector<std::string>& chosen) -> absl::Status {
    for (const std::string& name : chosen) {
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      return InvalidField(flag, name, absl::StrCat("among this machine's devices: ", absl::StrJoin(names, ", ")));
    }
    return absl::OkStatus();
  };
  absl::Status status = check("--gradient_devices", options_.gradient_devices);
  status.Update(check("--benchmark_devices", options_.benchmark_devices));
  if (names.empty()) return absl::FailedPreconditionError("this machine has no device to compute on");
  state_ = std::make_unique<ServingState>(names);
  return status;
}

absl::Status Kevald::StartExecutors(const Platform& platform) {
  std::vector<ServedDevice> served;
  for (const std::unique_ptr<Device>& device : devices_) {
    if (device->runs_gradients) {
      Executor::Options options;
      options.device = device->name;
      options.max_queued = options_.max_queued_requests;
      options.on_device_lost = [state = state_.get(), name = device->name] { state->DeviceLost(name); };
      absl::StatusOr<std::unique_ptr<Executor>> executor =
          Executor::Start(std::move(options), platform.backends(device->description), &device->lease);
      if (!executor.ok()) return executor.status();
      device->executor = *std::move(executor);
      device->lease.SetReleaseCache([executor = device->executor.get()] { executor->ReleaseCache(); });
    }
    served.push_back({device->name, !device->description.device.cuda, device->description.memory_bytes, &device->lease,
                      device->executor.get()});
  }
  device_table_ = std::make_unique<DeviceTable>(std::move(served));
  return absl::OkStatus();
}

absl::Status Kevald::OpenJobs(const Platform& platform, const v1::ServerInfo& info) {
  absl::StatusOr<std::unique_ptr<JobStore>> store = JobStore::Open(options_.data_dir);
  if (!store.ok()) return store.status();
  job_store_ = *std::move(store);
  job_retention_ = std::make_unique<JobRetention>(
      job_store_.get(), JobRetention::Limits{options_.job_retention_days, options_.max_stored_jobs});
  std::vector<BenchmarkDevice> devices;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i]->runs_benchmarks) devices.push_back({info.devices(static_cast<int>(i)), &devices_[i]->lease});
  }
  job_runner_ = std::make_unique<JobRunner>(
      job_store_.get(), [make = platform.collectors](const v1::DeviceInfo& /*device*/) { return make(); },
      std::move(devices), info.build(), ClockPolicy{options_.lock_sm_clock_mhz, options_.data_dir, "/proc/self/exe"});
  const SpecContext context{info.limits(),
                            {info.devices().begin(), info.devices().end()},
                            {info.variants().begin(), info.variants().end()},
                            info.build()};
  benchmark_handler_ = std::make_unique<BenchmarkHandler>(job_store_.get(), job_runner_.get(), context);
  return absl::OkStatus();
}

void Kevald::MakeHandlers(const Platform& platform, const v1::ServerInfo& info) {
  RequestContext context;
  context.devices = device_table_.get();
  context.tensors = &tensor_store_;
  context.sessions = &session_store_;
  context.variants = &variants_;
  linear_logp_handler_ = std::make_unique<LinearLogpHandler>(context, &request_bytes_, host_memory_);
  session_handler_ = std::make_unique<SessionHandler>(context, host_memory_);
  contract_handler_ = std::make_unique<ContractHandler>(device_table_.get(), &variants_, platform.collectors);
  tensor_handler_ = std::make_unique<TensorHandler>(&tensor_store_);
  server_info_handler_ = std::make_unique<ServerInfoHandler>(
      info, device_table_.get(), state_.get(), &request_bytes_, [this, store = job_store_.get()](v1::ServerInfo* info) {
        const auto count = [store](v1::BenchmarkJob::State state) {
          const absl::StatusOr<std::vector<StoredJob>> jobs = store->JobsInState(state);
          return jobs.ok() ? static_cast<std::int64_t>(jobs->size()) : 0;  // Information never fails.
        };
        info->mutable_queue()->set_running_jobs(count(v1::BenchmarkJob::RUNNING));
        info->mutable_queue()->set_queued_jobs(count(v1::BenchmarkJob::QUEUED));
        const TensorStore::Usage usage = tensor_store_.usage();
        v1::TensorStoreInfo* const tensors = info->mutable_tensor_store();
        tensors->set_used_bytes(usage.used_bytes);
        tensors->set_expired_bytes(usage.expired_bytes);
        tensors->set_tensors(usage.tensors);
        tensors->set_sessions(session_store_.size());
        tensors->set_idle_bytes(host_memory_->kept_bytes());
      });
}

v1::ServerInfo Kevald::FixedInfo(const Platform& platform) const {
  v1::ServerInfo info;
  *info.mutable_build() = platform.build;
  for (const std::unique_ptr<Device>& device : devices_) {
    v1::DeviceInfo* const entry = info.add_devices();
    *entry = ToProto(device->description);
    entry->set_runs_gradients(device->runs_gradients);
    entry->set_runs_benchmarks(device->runs_benchmarks);
    entry->set_healthy(true);
  }
  info.mutable_devices(0)->set_note(platform.device_note);
  for (const linear_logp::VariantDescription& variant : variants_) {
    v1::VariantInfo* const entry = info.add_variants();
    *entry = ToProto(variant);
    entry->clear_devices();
    for (const std::unique_ptr<Device>& device : devices_) {
      if (device->description.device.cuda ? variant.cuda : variant.cpu) entry->add_devices(device->name);
    }
  }
  v1::Limits* const limits = info.mutable_limits();
  limits->set_max_unary_bytes(RequestLimits().max_unary_bytes);
  limits->set_max_frame_bytes(kMaxFrameBytes);
  limits->set_max_message_bytes(kMaxMessageBytes);
  limits->set_max_queued_requests(options_.max_queued_requests);
  limits->set_max_queued_bytes(request_bytes_.limit());
  limits->set_max_stored_tensor_bytes(tensor_store_.max_bytes());
  limits->set_max_stored_tensor_bytes_per_caller(
      std::min(tensor_store_.max_bytes(), tensor_store_.options().max_bytes_per_principal));
  limits->set_max_stored_tensors_per_caller(options_.max_stored_tensors_per_caller);
  limits->set_max_sessions_per_caller(session_store_.options().max_sessions_per_principal);
  limits->set_remembered_batches(static_cast<std::int64_t>(GradientSession::kRememberedBatches));
  limits->set_default_lease_ms(options_.default_lease_seconds * 1000);
  limits->set_max_lease_ms(options_.max_lease_seconds * 1000);
  limits->set_max_series(options_.max_series);
  limits->set_max_job_device_seconds(options_.max_job_device_seconds);
  limits->set_max_queued_jobs(options_.max_queued_jobs);
  for (const v1::PayloadDigest digest : {v1::PAYLOAD_DIGEST_SHA256, v1::PAYLOAD_DIGEST_XXH3, v1::PAYLOAD_DIGEST_NONE}) {
    info.add_payload_digests(digest);
  }
  info.set_advertise_bulk(options_.advertise_bulk);
  info.set_start_time_unix_ms(absl::ToUnixMillis(absl::Now()));
  return info;
}

void Kevald::Tidy() {
  tensor_store_.DropExpired();
  session_store_.DropExpired();
  tensor_handler_->DropIdleUploads();
  host_memory_->DropOlderThan(absl::Now() - kKeepMemory);
  job_retention_->Tidy(absl::Now());
}

void Kevald::Drain() {
  if (std::exchange(drained_, true)) return;
  if (state_ != nullptr) {
    state_->StartDraining();
    if (job_runner_ != nullptr) job_runner_->StartDraining();
    state_->WaitUntilIdle(std::chrono::steady_clock::now() + std::chrono::seconds(options_.drain_grace_seconds));
    state_->EndCalls();
  }
  if (frontend_ != nullptr) frontend_->Shutdown(kEndCallsGrace);
  if (job_runner_ != nullptr) job_runner_->Drain();
  for (const std::unique_ptr<Device>& device : devices_) {
    if (device->executor != nullptr) device->executor->Stop();
  }
}

}  // namespace keval::server
