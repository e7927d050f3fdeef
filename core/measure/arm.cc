#include "core/measure/arm.h"

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/linear_logp/autocast.h"
#include "core/linear_logp/chunk_plan.h"
#include "core/linear_logp/numerics.h"
#include "core/linear_logp/variant.h"
#include "core/measure/delay.h"
#include "core/measure/failure_text.h"
#include "core/measure/fresh_memory.h"
#include "core/measure/inputs.h"
#include "core/measure/results.h"
#include "core/measure/weight_gradient.h"
#include "core/measure/wrong_result.h"
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
  linear_logp::Numerics numerics;                    // Of the process, before the arm ran.
  std::array<std::optional<Digests>, 2> expected{};  // By value set; of Prepare's region.
  std::array<InputDigests, 2> inputs_expected{};

  c10::DeviceType DeviceType() const { return session->device().cuda ? c10::kCUDA : c10::kCPU; }

  // Leaves the session marked as running that variant: the caller takes the mark back once it has awaited the call.
  absl::Status Call(const linear_logp::Variant& which, linear_logp::Dispatch* told, Results* out) {
    session->MarkRunning(&which == variant ? Running::kArm : Running::kBase);
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

  absl::Status Error(WrongResult kind, absl::string_view text) const {
    return WrongResultError(kind, absl::StrCat(spec.variant, " ", text));
  }

  absl::Status NothingElseChanged() const {
    absl::StatusOr<InputDigests> digests = inputs->Digest();
    if (!digests.ok()) {
      return digests.status();
    }
    for (std::size_t i = 0; i < digests->size(); ++i) {
      if ((*digests)[i] != inputs_expected[inputs->set()][i]) {
        return Error(WrongResult::kInputsChanged, absl::StrCat("changed its inputs: ", kInputNames[i]));
      }
    }
    if (!(linear_logp::ReadNumerics() == numerics)) {
      return Error(WrongResult::kPrecisionChanged, "changed the process's precision settings (TF32 and the like)");
    }
    return absl::OkStatus();
  }

  // How results with `digests` depend on what fresh memory held, by calling the arm again over filled memory; kOther
  // where they don't, or where it then gives what was `expected`.
  absl::StatusOr<WrongResult> MemoryFault(const Digests& digests, const std::optional<Digests>& expected_digests) {
    std::array<Digests, 2> filled{};
    bool holds_fill = false;
    for (std::size_t i = 0; i < filled.size(); ++i) {
      absl::StatusOr<std::unique_ptr<FreshMemoryFill>> fill = FreshMemoryFill::Begin(*session);
      if (!fill.ok()) {
        return fill.status();
      }
      Results again;
      linear_logp::Dispatch told;
      if (absl::Status status = Call(*variant, &told, &again); !status.ok()) {
        return status;
      }
      absl::StatusOr<Digests> got = DigestsOf(*session, again);
      if (!got.ok()) {
        return got.status();
      }
      session->MarkRunning(Running::kHarness);
      if (i == 0 && (*got == digests || got.value() == expected_digests)) {
        return WrongResult::kOther;
      }
      filled[i] = *got;
      holds_fill = std::any_of(again.begin(), again.end(),
                               [](const at::Tensor& result) { return HoldsRunOf(kFreshByte, result); });
    }
    if (filled[0] != filled[1]) {
      return WrongResult::kNotRepeatable;
    }
    return holds_fill ? WrongResult::kNotWritten : WrongResult::kRecycledMemory;
  }

  absl::Status MemoryError(WrongResult kind) const {
    switch (kind) {
      case WrongResult::kNotWritten:
        return Error(kind, "leaves results partly unwritten: they held what fresh memory had been filled with");
      case WrongResult::kRecycledMemory:
        return Error(kind, "reads memory that it has not written: its results depend on what fresh memory held");
      case WrongResult::kNotRepeatable:
        return Error(kind, "gives other bits when it computes the same inputs again");
      default:
        return absl::OkStatus();
    }
  }

  absl::Status UnfinishedError(absl::string_view result) const {
    return Error(WrongResult::kUnfinishedWork,
                 absl::StrCat("returned before its work was done: its results, ", result,
                              " among them, changed afterwards, by another stream or thread that nothing waits for"));
  }

  // The most telling name for why `results` are wrong in their `which`th tensor; `base`'s are undefined where nothing
  // was compared. Without a better one: `otherwise`, `why`. Drops the results.
  absl::Status Explain(std::size_t which, const Results& base, const Digests& digests, WrongResult otherwise,
                       const std::string& why) {
    const char* const name = kResultNames[which];
    absl::StatusOr<bool> changing = StillChanging(*session, results, digests);
    if (!changing.ok()) {
      return changing.status();
    }
    if (*changing) {
      return UnfinishedError(name);
    }
    const std::optional<Digests>& other = expected[1 - inputs->set()];
    if (other.has_value() && results[which].defined() && digests[which] == (*other)[which]) {
      return Error(WrongResult::kCachedResult,
                   absl::StrCat("returned a cached result: ", name, " is what it computed from other inputs before"));
    }
    const bool rounded = LooksRounded(base[which], results[which]);
    DropResults();
    absl::StatusOr<WrongResult> memory = MemoryFault(digests, expected[inputs->set()]);
    if (!memory.ok()) {
      return memory.status();
    }
    const bool timed = expected[inputs->set()].has_value();
    if (*memory != WrongResult::kOther && !(timed && *memory == WrongResult::kNotRepeatable)) {
      return MemoryError(*memory);
    }
    if (rounded) {
      return Error(WrongResult::kLowPrecision, absl::StrCat("computes float32 with fewer bits: ", name,
                                                            " is off as by products of TF32, bfloat16 or "
                                                            "float16 operands, evenly and without a trend: ",
                                                            why));
    }
    return Error(otherwise, why);
  }

  // One value set's expectation; the inputs hold it. Base is called in every arm's process, in base's own too, so that
  // all allocators have the same past: what was freed before decides the page faults of every later call.
  absl::Status PrepareSet(const linear_logp::Variant& base) {
    absl::StatusOr<InputDigests> inputs_digest = inputs->Digest();
    if (!inputs_digest.ok()) {
      return inputs_digest.status();
    }
    inputs_expected[inputs->set()] = *inputs_digest;
    numerics = linear_logp::ReadNumerics();
    Results base_results;
    linear_logp::Dispatch base_told;
    absl::Status base_status = Call(base, &base_told, &base_results);
    if (base_status.ok()) {
      base_status = session->Synchronize();
    }
    if (!base_status.ok()) {
      return &base == variant
                 ? base_status
                 : absl::Status(base_status.code(), absl::StrCat("base, run to compare with: ", base_status.message()));
    }
    if (absl::Status status = Call(*variant, &dispatch, &results); !status.ok()) {
      return status;
    }
    absl::StatusOr<Digests> digests = DigestsOf(*session, results);  // First, before anything waits for other streams.
    if (!digests.ok()) {
      return digests.status();
    }
    session->MarkRunning(Running::kHarness);
    if (absl::Status status = NothingElseChanged(); !status.ok()) {
      return status;
    }
    const linear_logp::VariantDescription base_is = base.Describe();
    const Disagreement found = Compare(base_is, variant->Describe(), base_results, results);
    if (found.result != kResults) {
      return Explain(found.result, base_results, *digests, WrongResult::kOther,
                     absl::StrCat("gives a ", kResultNames[found.result], " that is not what ", base_is.name,
                                  " computes from the same inputs: ", found.why));
    }
    base_results = {};
    // Right by the time it was compared is not enough: it had to be when the call's own stream was through.
    if (absl::Status status = session->Synchronize(); !status.ok()) {
      return status;
    }
    absl::StatusOr<Digests> afterwards = DigestsOf(*session, results);
    if (!afterwards.ok()) {
      return afterwards.status();
    }
    const auto changed = std::mismatch(digests->begin(), digests->end(), afterwards->begin()).first;
    if (changed != digests->end()) {
      return UnfinishedError(kResultNames[static_cast<std::size_t>(changed - digests->begin())]);
    }
    expected[inputs->set()] = *digests;
    if (absl::Status status = PoisonAndDrop(*session, &results); !status.ok()) {
      return status;
    }
    if (inputs->set() != 0) {
      return absl::OkStatus();  // Once is enough.
    }
    absl::StatusOr<WrongResult> memory = MemoryFault(*digests, std::nullopt);
    return memory.ok() ? MemoryError(*memory) : memory.status();
  }

  void DropResults() { results = {}; }
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
  session->MarkRunning(Running::kArm);
  const linear_logp::Support support = (*variant)->Supports(*problem, state->options, session->device());
  session->MarkRunning(Running::kHarness);
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
  const absl::StatusOr<const linear_logp::Variant*> base = linear_logp::FindVariant(base_variant);
  if (!base.ok()) {
    return base.status();
  }
  DropResults();
  state.expected = {};
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
    if (absl::Status status = CatchFailures([&state, &base] { return state.PrepareSet(**base); }); !status.ok()) {
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
  return CatchFailures([&state = *state_] {
    absl::StatusOr<Digests> digests = DigestsOf(*state.session, state.results);
    if (!digests.ok()) {
      return digests.status();
    }
    const Digests& expected = *state.expected[state.inputs->set()];
    for (std::size_t i = 0; i < kResults; ++i) {
      if ((*digests)[i] != expected[i]) {
        return state.Explain(i, {}, *digests, WrongResult::kTimedDifferently,
                             absl::StrCat("computes otherwise when timed: ", kResultNames[i],
                                          " after a call in a block is not what it computed from the same inputs "
                                          "before the block"));
      }
    }
    if (absl::Status status = state.NothingElseChanged(); !status.ok()) {
      return status;
    }
    return PoisonAndDrop(*state.session, &state.results);
  });
}

void Arm::DropResults() { state_->DropResults(); }

const linear_logp::Dispatch& Arm::dispatch() const { return state_->dispatch; }
std::int64_t Arm::input_bytes() const { return state_->inputs->bytes(); }

}  // namespace keval::measure
