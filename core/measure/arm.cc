#include "core/measure/arm.h"

#include <c10/core/DeviceType.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/linear_logp/autocast.h"
#include "core/linear_logp/chunk_plan.h"
#include "core/linear_logp/failure_text.h"
#include "core/measure/arm_state.h"
#include "core/measure/arm_verifier.h"
#ifdef KEVAL_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace keval::measure {
namespace {

absl::StatusOr<linear_logp::Problem> ProblemOf(const ArmSpec& spec, bool on_cpu) {
  linear_logp::TensorSpecs specs;
  specs.hidden = {spec.dtype, {spec.num_tokens, spec.hidden_size}};
  specs.weight = {spec.dtype, {spec.vocab_size, spec.hidden_size}};
  if (spec.bias) {
    specs.bias = TensorSpec{spec.dtype, {spec.vocab_size}};
  }
  specs.targets = {DType::kInt64, {spec.num_tokens}};
  specs.grad_logp = TensorSpec{spec.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32, {spec.num_tokens}};
  return linear_logp::ValidateProblem(specs, on_cpu);
}

}  // namespace

absl::Status ArmState::Call(const linear_logp::Variant& which, linear_logp::Dispatch* told, Results* out) {
  session->MarkRunning(&which == variant ? Running::kArm : Running::kBase);
  return linear_logp::CatchFailures([&] {
    const linear_logp::AutocastScope autocast(session->device().cuda ? c10::kCUDA : c10::kCPU, spec.autocast);
    *told = {};
    told->requested_variant = which.Describe().name;
    if (region == Region::kWeightGradient) {
      (*out)[2] = weight_gradient->Run(which, inputs->tensors());
      return absl::OkStatus();
    }
    if (region == Region::kForwardBackward) {
      (*out)[0] = which.Forward(inputs->tensors(), options, nullptr, told);
    }
    linear_logp::Gradients gradients = which.Backward(inputs->tensors(), options, {}, nullptr, told);
    (*out)[1] = std::move(gradients.grad_hidden);
    (*out)[2] = std::move(gradients.grad_weight);
    (*out)[3] = std::move(gradients.grad_bias);
    return absl::OkStatus();
  });
}

struct Arm::State : ArmState {
  ArmVerifier verifier{this};
};

Arm::Arm(std::unique_ptr<State> state) : state_(std::move(state)) {}

Arm::~Arm() {
  const bool cuda = state_->session->device().cuda;
  state_.reset();
#ifdef KEVAL_CUDA
  if (cuda) {
    // The other arms' processes need the memory that this one's allocator would keep.
    linear_logp::CatchFailures([] {
      c10::cuda::CUDACachingAllocator::emptyCache();
      return absl::OkStatus();
    }).IgnoreError();
  }
#else
  static_cast<void>(cuda);
#endif
}

absl::StatusOr<std::unique_ptr<Arm>> Arm::Create(const ArmSpec& spec, std::uint64_t input_seed,
                                                 const DeviceSession* session) {
  absl::StatusOr<const linear_logp::Variant*> variant = linear_logp::FindVariant(spec.variant);
  if (!variant.ok()) {
    return variant.status();
  }
  absl::StatusOr<linear_logp::Problem> problem = ProblemOf(spec, !session->device().cuda);
  if (!problem.ok()) {
    return problem.status();
  }
  auto state = std::make_unique<State>();
  state->spec = spec;
  state->session = session;
  state->variant = *variant;
  state->problem = *problem;
  state->options.variant = spec.variant;
  state->options.autocast = spec.autocast;
  state->options.chunk_elems = spec.chunk_elems > 0 ? spec.chunk_elems : linear_logp::kDefaultChunkElems;
  state->options.force_variant = spec.force_variant;
  session->MarkRunning(Running::kArm);
  const linear_logp::Support support = (*variant)->Supports(*problem, state->options, session->device());
  session->MarkRunning(Running::kHarness);
  if (!support.supported) {
    return absl::FailedPreconditionError(absl::StrCat(spec.variant, " declines: ", support.reason));
  }
  absl::Status status = linear_logp::CatchFailures([&state, &problem, input_seed, session] {
    absl::StatusOr<InputValues> inputs = InputValues::Create(*problem, input_seed, session);
    if (!inputs.ok()) {
      return inputs.status();
    }
    state->inputs.emplace(*std::move(inputs));
    return absl::OkStatus();
  });
  if (!status.ok()) {
    return status;
  }
  if (spec.delay_fraction.has_value()) {
    absl::StatusOr<std::unique_ptr<Delay>> delay = Delay::Create(session->place(), *spec.delay_fraction);
    if (!delay.ok()) {
      return delay.status();
    }
    state->delay = *std::move(delay);
  }
  return std::unique_ptr<Arm>(new Arm(std::move(state)));
}

absl::Status Arm::Prepare(const std::string& base_variant, Region region) {
  State& state = *state_;
  const absl::StatusOr<const linear_logp::Variant*> base = linear_logp::FindVariant(base_variant);
  if (!base.ok()) {
    return base.status();
  }
  DropResults();
  state.verifier.Reset();
  state.region = region;
  if (region == Region::kWeightGradient && !state.weight_gradient.has_value()) {
    absl::Status status = linear_logp::CatchFailures([&state] {
      absl::StatusOr<WeightGradientWork> work =
          WeightGradientWork::Create(*state.variant, state.problem, state.options, state.session);
      if (!work.ok()) {
        return work.status();
      }
      state.weight_gradient.emplace(*std::move(work));
      return absl::OkStatus();
    });
    if (!status.ok()) {
      return status;
    }
  }
  for (int set = 0; set < 2; ++set) {
    absl::Status status = linear_logp::CatchFailures([&state, &base] {
      absl::Status filled = state.inputs->Next();
      return filled.ok() ? state.verifier.PrepareSet(**base) : filled;
    });
    if (!status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status Arm::NextInputs() {
  return linear_logp::CatchFailures([&state = *state_] { return state.verifier.NextInputs(); });
}

absl::Status Arm::Run() {
  Delay* const delay = state_->delay.get();
  absl::Status status = delay == nullptr ? absl::OkStatus() : delay->Begin();
  if (status.ok()) {
    status = state_->Call(*state_->variant, &state_->dispatch, &state_->results);
  }
  return status.ok() && delay != nullptr ? delay->End() : status;
}

absl::Status Arm::VerifyAndPoison() {
  return linear_logp::CatchFailures([&state = *state_] {
    absl::Status status = state.verifier.Verify();
    return status.ok() ? PoisonAndDrop(*state.session, &state.results) : status;
  });
}

void Arm::DropResults() { state_->results = {}; }

const linear_logp::Dispatch& Arm::dispatch() const { return state_->dispatch; }
std::int64_t Arm::input_bytes() const { return state_->inputs->bytes(); }

}  // namespace keval::measure
