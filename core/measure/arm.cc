#include "core/measure/arm.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceType.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/number.h"
#include "core/contract/agreement.h"
#include "core/linear_logp/autocast.h"
#include "core/linear_logp/chunk_plan.h"
#include "core/linear_logp/variant.h"
#include "core/measure/delay.h"
#include "core/measure/failure_text.h"
#include "core/measure/inputs.h"
#include "core/measure/weight_gradient.h"
#ifdef KEVAL_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace keval::measure {
namespace {

constexpr int kResults = 4;
constexpr std::array<const char*, kResults> kResultNames = {"logp", "grad_hidden", "grad_weight", "grad_bias"};
using Results = std::array<at::Tensor, kResults>;
using Digests = std::array<std::uint64_t, kResults>;

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

// Not the contract's judgement (that is its own check), but enough to catch a result that was not computed: relative
// Frobenius distance of two right implementations that sum in other orders or on tensor cores.
double WideLimit(const at::Tensor& result, double declared_epsilon) {
  const bool wide_type = result.scalar_type() == at::kFloat || result.scalar_type() == at::kDouble;
  return std::max(wide_type ? 1e-5 : 1e-2, 8 * declared_epsilon);
}

}  // namespace

struct Arm::State {
  ArmSpec spec;
  const DeviceSession* session = nullptr;
  const linear_logp::Variant* variant = nullptr;
  linear_logp::Problem problem;
  linear_logp::Options options;
  Region region = Region::kForwardBackward;
  std::optional<InputValues> inputs;
  std::optional<WeightGradientWork> weight_gradient;
  std::unique_ptr<Delay> delay;  // Null: none.
  Results results;
  linear_logp::Dispatch dispatch;
  std::array<Digests, 2> expected{};  // By value set; of Prepare's region.
  std::array<std::uint64_t, 2> inputs_expected{};

  c10::DeviceType DeviceType() const { return session->device().cuda ? c10::kCUDA : c10::kCPU; }

  absl::Status Call(const linear_logp::Variant& which, linear_logp::Dispatch* told, Results* out) {
    return CatchFailures([&] {
      const linear_logp::AutocastScope autocast(DeviceType(), spec.autocast);
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

  absl::StatusOr<Digests> DigestsOf(const Results& of) const {
    Digests digests{};
    for (int i = 0; i < kResults; ++i) {
      const at::Tensor& tensor = of[i];
      if (tensor.defined()) {
        const at::Tensor flat = tensor.contiguous();
        absl::StatusOr<std::uint64_t> digest =
            Digest(session->place(), flat.const_data_ptr(), static_cast<std::int64_t>(flat.nbytes()));
        if (!digest.ok()) {
          return digest.status();
        }
        digests[i] = *digest;
      }
    }
    return digests;
  }

  // DATA_LOSS naming the result in which `own` is not what base computed.
  absl::Status Agree(const linear_logp::Variant& base_variant, const Results& base, const Results& own) const {
    const linear_logp::VariantDescription base_is = base_variant.Describe();
    const linear_logp::VariantDescription own_is = variant->Describe();
    const bool both_production = base_is.production_path != linear_logp::ProductionPath::kNone &&
                                 own_is.production_path != linear_logp::ProductionPath::kNone;
    for (int i = 0; i < kResults; ++i) {
      const contract::Agreement agreement = contract::CompareC1(base[i], own[i]);
      bool ok = agreement.ok;
      if (!ok && !both_production && base[i].defined() && own[i].defined()) {
        ok = agreement.frobenius <= WideLimit(base[i], std::max(base_is.epsilon, own_is.epsilon));
      }
      if (!ok) {
        return absl::DataLossError(absl::StrCat(kResultNames[i], " of ", own_is.name, " is not what ", base_is.name,
                                                " computes from the same inputs: ", agreement.why));
      }
    }
    return absl::OkStatus();
  }

  absl::Status InputsUnchanged() const {
    absl::StatusOr<std::uint64_t> digest = inputs->Digest();
    if (!digest.ok()) {
      return digest.status();
    }
    if (*digest != inputs_expected[inputs->set()]) {
      return absl::DataLossError(absl::StrCat(spec.variant, " changed its inputs"));
    }
    return absl::OkStatus();
  }

  absl::Status PoisonResults() {
    absl::Status status;
    for (at::Tensor& tensor : results) {
      if (tensor.defined() && tensor.is_contiguous() && status.ok()) {
        status = Poison(session->place(), tensor.data_ptr(), static_cast<std::int64_t>(tensor.nbytes()));
      }
      tensor.reset();
    }
    return status;
  }

  // One value set's expectation; the inputs hold it.
  absl::Status PrepareSet(const linear_logp::Variant* base) {
    absl::StatusOr<std::uint64_t> inputs_digest = inputs->Digest();
    if (!inputs_digest.ok()) {
      return inputs_digest.status();
    }
    inputs_expected[inputs->set()] = *inputs_digest;
    Results base_results;
    linear_logp::Dispatch base_told;
    if (base != nullptr) {
      if (absl::Status status = Call(*base, &base_told, &base_results); !status.ok()) {
        return absl::Status(status.code(), absl::StrCat("base, run to compare with: ", status.message()));
      }
    }
    if (absl::Status status = Call(*variant, &dispatch, &results); !status.ok()) {
      return status;
    }
    if (absl::Status status = InputsUnchanged(); !status.ok()) {
      return status;
    }
    if (base != nullptr) {
      absl::Status agreed = CatchFailures([&] { return Agree(*base, base_results, results); });
      if (!agreed.ok()) {
        return agreed;
      }
    }
    absl::StatusOr<Digests> digests = DigestsOf(results);
    if (!digests.ok()) {
      return digests.status();
    }
    expected[inputs->set()] = *digests;
    return PoisonResults();
  }
};

Arm::Arm(std::unique_ptr<State> state) : state_(std::move(state)) {}

Arm::~Arm() {
  const bool cuda = state_->session->device().cuda;
  state_.reset();
#ifdef KEVAL_CUDA
  if (cuda) {
    // The other arms' processes need the memory that this one's allocator would keep.
    CatchFailures([] {
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
  const linear_logp::Support support = (*variant)->Supports(*problem, state->options, session->device());
  if (!support.supported) {
    return absl::FailedPreconditionError(absl::StrCat(spec.variant, " declines: ", support.reason));
  }
  absl::Status status = CatchFailures([&state, &problem, input_seed, session] {
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
  const linear_logp::Variant* base = nullptr;
  if (base_variant != state.spec.variant) {
    absl::StatusOr<const linear_logp::Variant*> found = linear_logp::FindVariant(base_variant);
    if (!found.ok()) {
      return found.status();
    }
    base = *found;
  }
  DropResults();
  state.region = region;
  if (region == Region::kWeightGradient && !state.weight_gradient.has_value()) {
    absl::Status status = CatchFailures([&state] {
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
    if (absl::Status status = NextInputs(); !status.ok()) {
      return status;
    }
    if (absl::Status status = state.PrepareSet(base); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status Arm::NextInputs() { return state_->inputs->Next(); }

absl::Status Arm::Run() {
  Delay* const delay = state_->delay.get();
  absl::Status status = delay == nullptr ? absl::OkStatus() : delay->Begin();
  if (status.ok()) {
    status = state_->Call(*state_->variant, &state_->dispatch, &state_->results);
  }
  return status.ok() && delay != nullptr ? delay->End() : status;
}

absl::Status Arm::VerifyAndPoison() {
  State& state = *state_;
  absl::StatusOr<Digests> digests = state.DigestsOf(state.results);
  if (!digests.ok()) {
    return digests.status();
  }
  for (int i = 0; i < kResults; ++i) {
    if ((*digests)[i] != state.expected[state.inputs->set()][i]) {
      return absl::DataLossError(absl::StrCat(kResultNames[i], " of ", state.spec.variant,
                                              ", after its timed calls, is not what it computed from the same inputs "
                                              "before them"));
    }
  }
  if (absl::Status status = state.InputsUnchanged(); !status.ok()) {
    return status;
  }
  return state.PoisonResults();
}

void Arm::DropResults() {
  for (at::Tensor& tensor : state_->results) {
    tensor.reset();
  }
}

const linear_logp::Dispatch& Arm::dispatch() const { return state_->dispatch; }
std::int64_t Arm::input_bytes() const { return state_->inputs->bytes(); }

}  // namespace keval::measure
