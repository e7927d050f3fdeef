#include "server/worker/worker_session.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "core/contract/contract.h"
#include "core/linear_logp/engine.h"
#include "core/measure/block_runner.h"
#include "core/measure/dram_counter.h"
#include "core/measure/environment.h"
#include "core/measure/kernel_trace.h"
#include "core/measure/memory.h"
#include "core/measure/op_counter.h"
#include "core/measure/wrong_result.h"

namespace keval::worker {
namespace {

Reply FailedFor(Failure::Reason reason, absl::string_view detail) {
  Reply reply;
  reply.mutable_failure()->set_reason(reason);
  reply.mutable_failure()->set_detail(PrintableText(detail, 1024));
  return reply;
}

// The codes that core/measure uses; see Arm and failure_text.h.
Reply FailedBy(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return FailedFor(Failure::OUT_OF_MEMORY, status.message());
    case absl::StatusCode::kAborted:
      return FailedFor(Failure::ILLEGAL_ACCESS, status.message());
    case absl::StatusCode::kUnavailable:
      return FailedFor(Failure::DEVICE_LOST, status.message());
    case absl::StatusCode::kDataLoss: {
      Failure::Reason reason = Failure::WRONG_RESULT;
      Failure::Reason_Parse(std::string(measure::WrongResultNameOf(status)), &reason);
      return FailedFor(reason, status.message());
    }
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
      return FailedFor(Failure::UNSUPPORTED, status.message());
    default:
      return FailedFor(Failure::RAISED, status.message());
  }
}

measure::Region RegionOf(Region region) {
  switch (region) {
    case BACKWARD:
      return measure::Region::kBackward;
    case WEIGHT_GRADIENT:
      return measure::Region::kWeightGradient;
    default:
      return measure::Region::kForwardBackward;
  }
}

// nullopt where a name is unknown.
std::optional<measure::ArmSpec> ArmSpecOf(const Prepare& prepare) {
  measure::ArmSpec spec;
  const Shape& shape = prepare.shape();
  const std::optional<DType> dtype = ParseDType(shape.dtype());
  if (!dtype.has_value()) {
    return std::nullopt;
  }
  if (shape.autocast() == "bfloat16") {
    spec.autocast = linear_logp::Autocast::kBFloat16;
  } else if (shape.autocast() == "float16") {
    spec.autocast = linear_logp::Autocast::kFloat16;
  } else if (!shape.autocast().empty() && shape.autocast() != "none") {
    return std::nullopt;
  }
  spec.variant = prepare.variant();
  spec.num_tokens = shape.num_tokens();
  spec.hidden_size = shape.hidden_size();
  spec.vocab_size = shape.vocab_size();
  spec.dtype = *dtype;
  spec.bias = shape.bias();
  spec.chunk_elems = shape.chunk_elems();
  spec.force_variant = prepare.force_variant();
  if (prepare.has_delay_fraction()) {
    spec.delay_fraction = prepare.delay_fraction();
  }
  return spec;
}

void SetReading(const measure::DeviceReading& from, const RunBlock& block, DeviceReading* to) {
  to->set_sm_clock_mhz(from.sm_clock_mhz);
  to->set_memory_clock_mhz(from.memory_clock_mhz);
  to->set_power_watts(from.power_watts);
  to->set_temperature_celsius(from.temperature_celsius);
  to->set_throttle_reasons(from.throttle_reasons);
  const std::vector<int> own(block.own_process_ids().begin(), block.own_process_ids().end());
  to->set_other_processes(measure::OtherProcesses(from, own).value_or(-1));
}

}  // namespace

void WorkerSession::Handle(const Request& request, const Emit& emit) {
  mark_->store(Running::kHarness, std::memory_order_relaxed);
  if (request.request_case() != Request::kStart && request.request_case() != Request::kContract &&
      session_ == nullptr) {
    emit(FailedFor(Failure::BAD_REQUEST, "the worker was not started"));
    return;
  }
  switch (request.request_case()) {
    case Request::kStart:
      emit(Open(request.start()));
      return;
    case Request::kPrepare:
      emit(MakeArm(request.prepare()));
      return;
    case Request::kRunBlock:
      emit(Measure(request.run_block()));
      return;
    case Request::kProfile:
      emit(Count());
      return;
    case Request::kCountDram:
      emit(CountDram());
      return;
    case Request::kContract:
      emit(CheckContract(request.contract(), emit));
      return;
    case Request::kDescribeEnvironment:
      emit(Describe());
      return;
    case Request::kReadMemory:
      emit(TellMemory());
      return;
    case Request::REQUEST_NOT_SET:
      break;
  }
  emit(FailedFor(Failure::BAD_REQUEST, "an empty request"));
}

Reply WorkerSession::Failed(absl::Status status) const {
  return FailedBy(session_ == nullptr ? std::move(status) : session_->Explained(std::move(status)));
}

Reply WorkerSession::Open(const Start& start) {
  absl::StatusOr<linear_logp::Device> device = linear_logp::ParseDevice(start.device());
  if (!device.ok()) {
    return Failed(device.status());
  }
  absl::StatusOr<std::unique_ptr<measure::DeviceSession>> session =
      measure::DeviceSession::Open(*device, std::max(1, start.threads()), mark_);
  if (!session.ok()) {
    return Failed(session.status());
  }
  arm_.reset();
  session_ = *std::move(session);
  Reply reply;
  reply.mutable_started()->set_device_uuid(session_->uuid());
  reply.mutable_started()->set_nvml_note(session_->NvmlNote());
  return reply;
}

Reply WorkerSession::MakeArm(const Prepare& prepare) {
  arm_.reset();  // First, so that two arms' tensors never have to fit at once.
  Reply reply;
  if (prepare.variant().empty()) {
    reply.mutable_prepared();
    return reply;
  }
  const std::optional<measure::ArmSpec> spec = ArmSpecOf(prepare);
  if (!spec.has_value()) {
    return FailedFor(Failure::BAD_REQUEST, "an unknown dtype or autocast");
  }
  absl::StatusOr<std::unique_ptr<measure::Arm>> arm = measure::Arm::Create(*spec, prepare.input_seed(), session_.get());
  if (!arm.ok()) {
    return Failed(arm.status());
  }
  if (absl::Status status = (*arm)->Prepare(prepare.base_variant(), RegionOf(prepare.region())); !status.ok()) {
    return Failed(status);
  }
  const linear_logp::Dispatch& dispatch = (*arm)->dispatch();
  if (prepare.force_variant() && dispatch.fallback) {
    return FailedFor(Failure::FALLBACK, absl::StrCat(spec->variant, " ran another path, which force_variant forbids: ",
                                                     dispatch.path, ": ", dispatch.reason));
  }
  Prepared& prepared = *reply.mutable_prepared();
  if (prepare.measure_peak()) {
    absl::StatusOr<std::int64_t> peak = measure::IncrementalPeakBytes(*session_, [&arm] { return (*arm)->Run(); });
    if (!peak.ok()) {
      return Failed(peak.status());
    }
    session_->MarkRunning(Running::kHarness);
    (*arm)->DropResults();
    prepared.set_peak_bytes(*peak);
  }
  prepared.mutable_dispatch()->set_variant(dispatch.variant);
  prepared.mutable_dispatch()->set_path(dispatch.path);
  prepared.mutable_dispatch()->set_reason(dispatch.reason);
  prepared.mutable_dispatch()->set_fallback(dispatch.fallback);
  prepared.set_input_bytes((*arm)->input_bytes());
  prepared.set_held_bytes(measure::HeldBytes(*session_));
  arm_ = *std::move(arm);
  return reply;
}

Reply WorkerSession::Measure(const RunBlock& block) {
  if (arm_ == nullptr) {
    return FailedFor(Failure::BAD_REQUEST, "a block without an arm");
  }
  absl::StatusOr<measure::BlockResult> result =
      measure::RunBlock({block.discarded_repetitions(), block.timed_repetitions()}, *session_, arm_.get());
  if (!result.ok()) {
    return Failed(result.status());
  }
  Reply reply;
  BlockDone& done = *reply.mutable_block_done();
  done.mutable_ns()->Add(result->ns.begin(), result->ns.end());
  SetReading(result->before, block, done.mutable_before());
  SetReading(result->after, block, done.mutable_after());
  done.set_throttled(measure::WasThrottled(*result));
  done.set_reasons_between(result->reasons_between);
  return reply;
}

// A failure is the arm's: the mark stays then.
absl::Status WorkerSession::RunToItsEnd() {
  absl::Status status = arm_->Run();
  if (status.ok()) {
    status = session_->Synchronize();
  }
  if (status.ok()) {
    session_->MarkRunning(Running::kHarness);
  }
  return status;
}

Reply WorkerSession::Count() {
  if (arm_ == nullptr) {
    return FailedFor(Failure::BAD_REQUEST, "a profile without an arm");
  }
  const auto call = [this] { return RunToItsEnd(); };
  absl::StatusOr<measure::CountsByName> ops = measure::CountOps(call);
  if (!ops.ok()) {
    return Failed(ops.status());
  }
  Reply reply;
  Profiled& profiled = *reply.mutable_profiled();
  profiled.mutable_ops()->insert(ops->begin(), ops->end());
  absl::StatusOr<measure::KernelsByName> kernels = measure::TraceKernels(*session_, call);
  if (!kernels.ok()) {
    profiled.set_kernels_note(PrintableText(kernels.status().message()));
  } else if (!session_->device().cuda) {
    profiled.set_kernels_note("a CPU runs no kernels");
  } else {
    for (const auto& [name, sum] : *kernels) {
      (*profiled.mutable_kernels())[name] = sum.count;
      (*profiled.mutable_kernel_ns())[name] = sum.ns;
    }
  }
  arm_->DropResults();
  return reply;
}

Reply WorkerSession::CountDram() {
  if (arm_ == nullptr) {
    return FailedFor(Failure::BAD_REQUEST, "a count of bytes without an arm");
  }
  const absl::StatusOr<measure::DramBytes> bytes = measure::CountDramBytes(*session_, [this] { return RunToItsEnd(); });
  arm_->DropResults();
  Reply reply;
  DramCounted& counted = *reply.mutable_dram_counted();
  if (bytes.ok()) {
    counted.set_read_bytes(bytes->read);
    counted.set_written_bytes(bytes->written);
  } else {
    counted.set_note(PrintableText(bytes.status().message()));
  }
  return reply;
}

Reply WorkerSession::CheckContract(const Contract& contract, const Emit& emit) const {
  absl::StatusOr<linear_logp::Device> device = linear_logp::ParseDevice(contract.device());
  if (!device.ok()) {
    return Failed(device.status());
  }
  contract::ContractOptions options;
  options.base = contract.base_variant();
  options.candidate = contract.candidate_variant();
  options.device = *device;
  options.seed = contract.seed();
  options.threads = contract.threads();
  options.running = mark_;
  const auto emit_row = [&emit](const contract::Row& row) {
    Reply reply;
    ContractRow& out = *reply.mutable_contract_row();
    out.set_id(row.id);
    out.set_arm(row.arm);
    out.set_case_name(row.case_name);
    out.set_measured(row.measured);
    out.set_limit(row.limit);
    out.set_status(std::string(contract::RowStatusName(row.status)));
    out.set_why(PrintableText(row.why));
    emit(reply);
  };
  absl::StatusOr<std::vector<contract::Row>> rows = contract::CheckContract(options, emit_row, nullptr);
  if (!rows.ok()) {
    return Failed(rows.status());
  }
  Reply reply;
  reply.mutable_contract_done();
  return reply;
}

Reply WorkerSession::Describe() const {
  Reply reply;
  for (const auto& [name, text] : measure::DescribeEnvironment(*session_)) {
    (*reply.mutable_environment()->mutable_facts())[name] = PrintableText(text);
  }
  return reply;
}

Reply WorkerSession::TellMemory() const {
  Reply reply;
  MemoryRead& read = *reply.mutable_memory_read();
  if (const std::optional<std::int64_t> free_bytes = measure::FreeBytes(*session_); free_bytes.has_value()) {
    read.set_free_bytes(*free_bytes);
  }
  return reply;
}

}  // namespace keval::worker
