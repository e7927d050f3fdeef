#include "core/measure/arm.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/core/DeviceType.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <unordered_set>
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
  linear_logp::Numerics numerics;  // Of the process, before the arm ran.

  // What Prepare saw of one set of values.
  struct Expected {
    InputDigests inputs{};
    Digests results{};  // As they came.
    Digests unified{};  // After Unify.
    at::Tensor logp_of_free_tokens;
  };
  std::array<std::optional<Expected>, 2> expected{};  // By value set; of Prepare's region.
  linear_logp::Dispatch expected_dispatch;
  bool inputs_varied = false;
  InputDigests inputs_now{};                        // Of the next call.
  std::unordered_set<std::uint64_t> earlier_logps;  // Digests of those that no two calls may share.

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
      if ((*digests)[i] != inputs_now[i]) {
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

  // The same of the present set as it is, where the last call's inputs were varied.
  absl::StatusOr<WrongResult> MemoryFaultOfSet(const Digests& expected_digests) {
    absl::Status status = inputs->Restore();
    Results again;
    linear_logp::Dispatch told;
    if (status.ok()) {
      status = Call(*variant, &told, &again);
    }
    if (!status.ok()) {
      return status;
    }
    absl::StatusOr<Digests> digests = DigestsOf(*session, again);
    again = {};
    return digests.ok() ? MemoryFault(*digests, expected_digests) : digests.status();
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

  absl::Status CachedError(absl::string_view result) const {
    return Error(WrongResult::kCachedResult,
                 absl::StrCat("returned a cached result: ", result, " is what it computed from other inputs before"));
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
    const std::optional<Expected>& other = expected[1 - inputs->set()];
    if (other.has_value() && results[which].defined() && digests[which] == other->results[which]) {
      return CachedError(name);
    }
    const bool rounded = LooksRounded(base[which], results[which]);
    DropResults();
    const std::optional<Expected>& own = expected[inputs->set()];
    const bool timed = own.has_value();
    absl::StatusOr<WrongResult> memory = timed ? MemoryFaultOfSet(own->results) : MemoryFault(digests, std::nullopt);
    if (!memory.ok()) {
      return memory.status();
    }
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
    inputs_now = *inputs_digest;
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
    if (absl::Status status = digests.ok() ? AwaitAll() : digests.status(); !status.ok()) {
      return status;
    }
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
    absl::StatusOr<Digests> afterwards = DigestsOf(*session, results);
    if (!afterwards.ok()) {
      return afterwards.status();
    }
    const auto changed = std::mismatch(digests->begin(), digests->end(), afterwards->begin()).first;
    if (changed != digests->end()) {
      return UnfinishedError(kResultNames[static_cast<std::size_t>(changed - digests->begin())]);
    }
    Expected seen{*inputs_digest, *digests, {}, {}};
    if (results[kLogp].defined()) {
      earlier_logps.insert((*digests)[kLogp]);
      seen.logp_of_free_tokens = results[kLogp].index_select(0, FreeTokens());
    }
    Unify(1, &results);
    absl::StatusOr<Digests> unified = DigestsOf(*session, results);
    if (!unified.ok()) {
      return unified.status();
    }
    seen.unified = *unified;
    expected[inputs->set()] = std::move(seen);
    expected_dispatch = dispatch;
    if (absl::Status status = PoisonAndDrop(*session, &results); !status.ok()) {
      return status;
    }
    if (inputs->set() != 0) {
      return absl::OkStatus();  // Once is enough.
    }
    absl::StatusOr<WrongResult> memory = MemoryFault(*digests, std::nullopt);
    return memory.ok() ? MemoryError(*memory) : memory.status();
  }

  // All that the call queued on any stream; what runs from here on is the harness.
  absl::Status AwaitAll() const {
    absl::Status status = session->Synchronize();
    if (status.ok()) {
      session->MarkRunning(Running::kHarness);
    }
    return status;
  }

  // int64 on the session's device.
  at::Tensor FreeTokens() const {
    return at::tensor(inputs->free_tokens(), at::kLong).to(inputs->tensors().targets.device());
  }

  // Whether the logp is one that an earlier call gave, which free tokens make impossible. Then it is brought to what
  // the set as it is has for them.
  absl::StatusOr<bool> IsEarlierLogp(const Expected& before) {
    at::Tensor& logp = results[kLogp];
    if (!inputs_varied || !logp.defined() || inputs->free_tokens().empty()) {
      return false;
    }
    Results only;
    only[kLogp] = logp;
    absl::StatusOr<Digests> digest = DigestsOf(*session, only);
    if (!digest.ok()) {
      return digest.status();
    }
    if (!earlier_logps.insert((*digest)[kLogp]).second) {
      return true;
    }
    if (logp.sizes() == inputs->tensors().targets.sizes() &&
        logp.scalar_type() == before.logp_of_free_tokens.scalar_type()) {
      logp.index_copy_(0, FreeTokens(), before.logp_of_free_tokens);
    }
    return false;
  }

  // The last call's results are Prepare's, but for what Vary changed about the inputs, and not an earlier call's. They
  // are read before anything waits for other streams.
  absl::Status Verify() {
    const Expected& before = *expected[inputs->set()];
    absl::StatusOr<bool> earlier = IsEarlierLogp(before);
    if (!earlier.ok()) {
      return earlier.status();
    }
    Unify(inputs->sign(), &results);
    absl::StatusOr<Digests> digests = DigestsOf(*session, results);
    if (absl::Status status = digests.ok() ? AwaitAll() : digests.status(); !status.ok()) {
      return status;
    }
    if (*earlier) {
      return CachedError(kResultNames[kLogp]);
    }
    const auto wrong = std::mismatch(digests->begin(), digests->end(), before.unified.begin()).first;
    if (wrong != digests->end()) {
      return ExplainTimed(static_cast<std::size_t>(wrong - digests->begin()), *digests);
    }
    if (dispatch.path != expected_dispatch.path || dispatch.fallback != expected_dispatch.fallback) {
      return Error(WrongResult::kTimedDifferently,
                   absl::StrCat("took another path in a block than before it: ", dispatch.path, " instead of ",
                                expected_dispatch.path, dispatch.reason.empty() ? "" : ", because ", dispatch.reason));
    }
    return NothingElseChanged();
  }

  // Why unified results with `digests` are not Prepare's.
  absl::Status ExplainTimed(std::size_t which, const Digests& digests) {
    const char* const name = kResultNames[which];
    absl::StatusOr<bool> changing = StillChanging(*session, results, digests);
    if (!changing.ok()) {
      return changing.status();
    }
    if (*changing) {
      return UnfinishedError(name);
    }
    Unify(inputs->sign(), &results);  // The sign again: as they came.
    absl::StatusOr<Digests> came = DigestsOf(*session, results);
    if (!came.ok()) {
      return came.status();
    }
    for (const std::optional<Expected>& prepared : expected) {
      if (results[which].defined() && (*came)[which] == prepared->unified[which]) {
        return CachedError(name);
      }
    }
    return Explain(which, {}, *came, WrongResult::kTimedDifferently,
                   absl::StrCat("computes otherwise when timed: ", name,
                                " after a call in a block is not what it computed from the same inputs before the "
                                "block"));
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
  state.earlier_logps.clear();
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
    absl::Status status = CatchFailures([&state, &base] {
      absl::Status filled = state.inputs->Next();
      return filled.ok() ? state.PrepareSet(**base) : filled;
    });
    if (!status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status Arm::NextInputs() {
  State& state = *state_;
  return CatchFailures([&state] {
    absl::Status status = state.inputs->Next();
    const std::optional<State::Expected>& before = state.expected[state.inputs->set()];
    // The isolated accumulation multiplies what was computed before, whatever the upstream gradients.
    state.inputs_varied = before.has_value() && state.region != Region::kWeightGradient;
    if (!status.ok() || !before.has_value()) {
      return status;
    }
    state.inputs_now = before->inputs;
    if (!state.inputs_varied) {
      return status;
    }
    status = state.inputs->Vary();
    if (!status.ok()) {
      return status;
    }
    absl::StatusOr<InputDigests> digests = state.inputs->DigestVaried(before->inputs);
    if (digests.ok()) {
      state.inputs_now = *digests;
    }
    return digests.status();
  });
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
  return CatchFailures([&state = *state_] {
    absl::Status status = state.Verify();
    return status.ok() ? PoisonAndDrop(*state.session, &state.results) : status;
  });
}

void Arm::DropResults() { state_->DropResults(); }

const linear_logp::Dispatch& Arm::dispatch() const { return state_->dispatch; }
std::int64_t Arm::input_bytes() const { return state_->inputs->bytes(); }

}  // namespace keval::measure
