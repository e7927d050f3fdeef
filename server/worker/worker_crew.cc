#include "server/worker/worker_crew.h"

#include <unistd.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/worker/cpu_set.h"

namespace keval::worker {
namespace {

const char* SeatName(Seat seat) {
  switch (seat) {
    case Seat::kBase:
      return "base";
    case Seat::kCandidate:
      return "candidate";
    default:
      return "the copy of base";
  }
}

std::string CauseOf(Seat seat, WorkerFault::Blame blame) {
  switch (blame) {
    case WorkerFault::Blame::kBase:
      return "base";
    case WorkerFault::Blame::kHarness:
      return "harness";
    case WorkerFault::Blame::kDevice:
      return "device";
    case WorkerFault::Blame::kInfrastructure:
      return "infrastructure";
    default:
      return seat == Seat::kCandidate ? "candidate" : "base";
  }
}

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

}  // namespace

WorkerCrew::WorkerCrew(Options options, const server::JobArms& arms, server::DeviceLease* lease,
                       const server::RoundCollector::Check& check)
    : options_(std::move(options)),
      arms_(arms),
      lease_(lease),
      check_(check),
      hang_timeout_(Milliseconds(arms.hang_timeout_seconds)) {}

absl::Status WorkerCrew::Start(const std::vector<Seat>& seats, std::uint64_t draw) {
  const std::vector<int> cpus =
      arms_.device == "cpu" ? ChooseCpus(UsableCpus(), arms_.worker_threads, draw) : std::vector<int>();
  for (const Seat seat : seats) {
    absl::StatusOr<std::unique_ptr<WorkerProcess>> worker =
        WorkerProcess::Spawn(options_.program, arms_.worker_threads, options_.oom_counters);
    absl::Status status = worker.status();
    if (status.ok() && !cpus.empty()) {
      status = PinProcess((*worker)->pid(), cpus);
    }
    if (!status.ok()) {
      return Fail(seat, {WorkerFault::Blame::kHarness, "SPAWN_FAILED", std::string(status.message())});
    }
    workers_[static_cast<std::size_t>(seat)] = *std::move(worker);
    Request request;
    request.mutable_start()->set_device(arms_.device);
    request.mutable_start()->set_threads(arms_.worker_threads);
    Send(seat, request);
  }
  for (const Seat seat : seats) {
    absl::StatusOr<WorkerProcess::Answer> answer = Worker(seat).Receive(options_.start_timeout, check_);
    if (!answer.ok()) {
      return answer.status();
    }
    if (auto* const fault = std::get_if<WorkerFault>(&*answer)) {
      // No arm has run yet: a start that fails is the device's fault where it was refused, else the harness's.
      if (fault->blame != WorkerFault::Blame::kDevice && fault->blame != WorkerFault::Blame::kInfrastructure) {
        const bool device = fault->reason == "UNSUPPORTED" || fault->reason == "OUT_OF_MEMORY";
        fault->blame = device ? WorkerFault::Blame::kDevice : WorkerFault::Blame::kHarness;
        fault->reason = device ? "DEVICE_UNUSABLE" : "SPAWN_FAILED";
      }
      return Fail(seat, *fault);
    }
    if (!std::get<Reply>(*answer).has_started()) {
      return FailAsHarness(seat, "answered something else to its start");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Reply> WorkerCrew::Ask(Seat seat, const Request& request, std::chrono::milliseconds limit) {
  Send(seat, request);
  return Next(seat, limit);
}

void WorkerCrew::Send(Seat seat, const Request& request) { Worker(seat).Send(request); }

absl::StatusOr<Reply> WorkerCrew::Next(Seat seat, std::chrono::milliseconds limit) {
  absl::StatusOr<WorkerProcess::Answer> answer = Worker(seat).Receive(limit, check_);
  if (!answer.ok()) {
    return answer.status();
  }
  if (const auto* const fault = std::get_if<WorkerFault>(&*answer)) {
    return Fail(seat, *fault);
  }
  return std::get<Reply>(*std::move(answer));
}

absl::StatusOr<WorkerCrew::Turn> WorkerCrew::TakeTurn() {
  if (lease_ == nullptr) {
    return Turn(this, server::DeviceLease::Grant());
  }
  absl::StatusOr<server::DeviceLease::Grant> grant = lease_->AcquireForWorkers(check_);
  if (!grant.ok()) {
    return grant.status();
  }
  return Turn(this, *std::move(grant));
}

WorkerCrew::Turn::~Turn() {
  if (crew_ != nullptr) {
    crew_->device_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
}

absl::Status WorkerCrew::FailAsHarness(Seat seat, const std::string& detail) {
  return Fail(seat, {WorkerFault::Blame::kHarness, "PROTOCOL_ERROR", detail});
}

absl::Status WorkerCrew::Fail(Seat seat, const WorkerFault& fault) {
  server::WorkFailure failure;
  failure.cause = CauseOf(seat, fault.blame);
  failure.reason = fault.reason;
  failure.detail = absl::StrCat("The worker of ", SeatName(seat), " (", VariantOf(seat), ") ", fault.detail, ".");
  failure.is_contract = fault.is_contract;
  failure_ = std::move(failure);
  return absl::InternalError("a worker failed");  // Finish returns failure_ instead.
}

std::vector<int> WorkerCrew::process_ids() const {
  std::vector<int> ids = {getpid()};
  for (const auto& worker : workers_) {
    if (worker != nullptr) {
      ids.push_back(worker->pid());
    }
  }
  return ids;
}

const std::string& WorkerCrew::VariantOf(Seat seat) const {
  return seat == Seat::kCandidate ? arms_.candidate_variant : arms_.base_variant;
}

}  // namespace keval::worker
