#include "core/measure/arm_verifier.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/measure/fresh_memory.h"

namespace keval::measure {

void ArmVerifier::Reset() {
  expected_ = {};
  earlier_logps_.clear();
  inputs_varied_ = false;
}

absl::Status ArmVerifier::NextInputs() {
  absl::Status status = arm_.inputs->Next();
  const std::optional<Expected>& before = expected_[arm_.inputs->set()];
  // The isolated accumulation multiplies what was computed before, whatever the upstream gradients.
  inputs_varied_ = before.has_value() && arm_.region != Region::kWeightGradient;
  if (!status.ok() || !before.has_value()) {
    return status;
  }
  inputs_now_ = before->inputs;
  if (!inputs_varied_) {
    return status;
  }
  status = arm_.inputs->Vary();
  if (!status.ok()) {
    return status;
  }
  absl::StatusOr<InputDigests> digests = arm_.inputs->DigestVaried(before->inputs);
  if (digests.ok()) {
    inputs_now_ = *digests;
  }
  return digests.status();
}

absl::Status ArmVerifier::Error(WrongResult kind, absl::string_view text) const {
  return WrongResultError(kind, absl::StrCat(arm_.spec.variant, " ", text));
}

absl::Status ArmVerifier::NothingElseChanged() const {
  absl::StatusOr<InputDigests> digests = arm_.inputs->Digest();
  if (!digests.ok()) {
    return digests.status();
  }
  for (std::size_t i = 0; i < digests->size(); ++i) {
    if ((*digests)[i] != inputs_now_[i]) {
      return Error(WrongResult::kInputsChanged, absl::StrCat("changed its inputs: ", kInputNames[i]));
    }
  }
  if (!(linear_logp::ReadNumerics() == numerics_)) {
    return Error(WrongResult::kPrecisionChanged, "changed the process's precision settings (TF32 and the like)");
  }
  return absl::OkStatus();
}

// How results with `digests` depend on what fresh memory held, by calling the arm again over filled memory; kOther
// where they don't, or where it then gives what was `expected`.
absl::StatusOr<WrongResult> ArmVerifier::MemoryFault(const Digests& digests,
                                                     const std::optional<Digests>& expected_digests) {
  std::array<Digests, 2> filled{};
  bool holds_fill = false;
  for (std::size_t i = 0; i < filled.size(); ++i) {
    absl::StatusOr<std::unique_ptr<FreshMemoryFill>> fill = FreshMemoryFill::Begin(*arm_.session);
    if (!fill.ok()) {
      return fill.status();
    }
    Results again;
    linear_logp::Dispatch told;
    if (absl::Status status = arm_.Call(*arm_.variant, &told, &again); !status.ok()) {
      return status;
    }
    absl::StatusOr<Digests> got = DigestsOf(*arm_.session, again);
    if (!got.ok()) {
      return got.status();
    }
    arm_.session->MarkRunning(Running::kHarness);
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
absl::StatusOr<WrongResult> ArmVerifier::MemoryFaultOfSet(const Digests& expected_digests) {
  absl::Status status = arm_.inputs->Restore();
  Results again;
  linear_logp::Dispatch told;
  if (status.ok()) {
    status = arm_.Call(*arm_.variant, &told, &again);
  }
  if (!status.ok()) {
    return status;
  }
  absl::StatusOr<Digests> digests = DigestsOf(*arm_.session, again);
  again = {};
  return digests.ok() ? MemoryFault(*digests, expected_digests) : digests.status();
}

absl::Status ArmVerifier::MemoryError(WrongResult kind) const {
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

absl::Status ArmVerifier::CachedError(absl::string_view result) const {
  return Error(WrongResult::kCachedResult,
               absl::StrCat("returned a cached result: ", result, " is what it computed from other inputs before"));
}

absl::Status ArmVerifier::UnfinishedError(absl::string_view result) const {
  return Error(WrongResult::kUnfinishedWork,
               absl::StrCat("returned before its work was done: its results, ", result,
                            " among them, changed afterwards, by another stream or thread that nothing waits for"));
}

// UNFINISHED_WORK where the results, the `which`th wrong, still change.
absl::Status ArmVerifier::Settled(std::size_t which, const Digests& digests) const {
  absl::StatusOr<bool> changing = StillChanging(*arm_.session, arm_.results, digests);
  if (!changing.ok()) {
    return changing.status();
  }
  return *changing ? UnfinishedError(kResultNames[which]) : absl::OkStatus();
}

// The most telling name for why the arm's results are wrong in their `which`th tensor; `base`'s are undefined where
// nothing was compared. Without a better one: `otherwise`, `why`. Drops the results, which
// have settled.
absl::Status ArmVerifier::Explain(std::size_t which, const Results& base, const Digests& digests, WrongResult otherwise,
                                  const std::string& why) {
  const char* const name = kResultNames[which];
  const std::optional<Expected>& other = expected_[1 - arm_.inputs->set()];
  if (other.has_value() && arm_.results[which].defined() && digests[which] == other->results[which]) {
    return CachedError(name);
  }
  const bool rounded = LooksRounded(base[which], arm_.results[which]);
  arm_.results = {};
  const std::optional<Expected>& own = expected_[arm_.inputs->set()];
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

absl::Status ArmVerifier::PrepareSet(const linear_logp::Variant& base) {
  absl::StatusOr<InputDigests> inputs_digest = arm_.inputs->Digest();
  if (!inputs_digest.ok()) {
    return inputs_digest.status();
  }
  inputs_now_ = *inputs_digest;
  numerics_ = linear_logp::ReadNumerics();
  Results base_results;
  linear_logp::Dispatch base_told;
  absl::Status base_status = arm_.Call(base, &base_told, &base_results);
  if (base_status.ok()) {
    base_status = arm_.session->Synchronize();
  }
  if (!base_status.ok()) {
    return &base == arm_.variant
               ? base_status
               : absl::Status(base_status.code(), absl::StrCat("base, run to compare with: ", base_status.message()));
  }
  if (absl::Status status = arm_.Call(*arm_.variant, &arm_.dispatch, &arm_.results); !status.ok()) {
    return status;
  }
  absl::StatusOr<Digests> digests =
      DigestsOf(*arm_.session, arm_.results);  // First, before anything waits for other streams.
  if (absl::Status status = digests.ok() ? AwaitAll() : digests.status(); !status.ok()) {
    return status;
  }
  if (absl::Status status = NothingElseChanged(); !status.ok()) {
    return status;
  }
  const linear_logp::VariantDescription base_is = base.Describe();
  const Disagreement found = Compare(base_is, arm_.variant->Describe(),
                                     arm_.spec.autocast != linear_logp::Autocast::kNone, base_results, arm_.results);
  if (found.result != kResults) {
    if (absl::Status status = Settled(found.result, *digests); !status.ok()) {
      return status;
    }
    return Explain(found.result, base_results, *digests, WrongResult::kOther,
                   absl::StrCat("gives a ", kResultNames[found.result], " that is not what ", base_is.name,
                                " computes from the same inputs: ", found.why));
  }
  base_results = {};
  // Right by the time it was compared is not enough: it had to be when the call's own stream was through.
  absl::StatusOr<Digests> afterwards = DigestsOf(*arm_.session, arm_.results);
  if (!afterwards.ok()) {
    return afterwards.status();
  }
  const auto changed = std::mismatch(digests->begin(), digests->end(), afterwards->begin()).first;
  if (changed != digests->end()) {
    return UnfinishedError(kResultNames[static_cast<std::size_t>(changed - digests->begin())]);
  }
  Expected seen{*inputs_digest, *digests, {}, {}};
  if (arm_.results[kLogp].defined()) {
    earlier_logps_.insert((*digests)[kLogp]);
    seen.logp_of_free_tokens = arm_.results[kLogp].index_select(0, FreeTokens());
  }
  Unify(1, &arm_.results);
  absl::StatusOr<Digests> unified = DigestsOf(*arm_.session, arm_.results);
  if (!unified.ok()) {
    return unified.status();
  }
  seen.unified = *unified;
  expected_[arm_.inputs->set()] = std::move(seen);
  expected_dispatch_ = arm_.dispatch;
  if (absl::Status status = PoisonAndDrop(*arm_.session, &arm_.results); !status.ok()) {
    return status;
  }
  if (arm_.inputs->set() != 0) {
    return absl::OkStatus();  // Once is enough.
  }
  absl::StatusOr<WrongResult> memory = MemoryFault(*digests, std::nullopt);
  return memory.ok() ? MemoryError(*memory) : memory.status();
}

// All that the call queued on any stream; what runs from here on is the harness.
absl::Status ArmVerifier::AwaitAll() const {
  absl::Status status = arm_.session->Synchronize();
  if (status.ok()) {
    arm_.session->MarkRunning(Running::kHarness);
  }
  return status;
}

// int64 on the session's device.
at::Tensor ArmVerifier::FreeTokens() const {
  return at::tensor(arm_.inputs->free_tokens(), at::kLong).to(arm_.inputs->tensors().targets.device());
}

// Whether the logp is one that an earlier call gave, which free tokens make impossible. Then it is brought to what
// the set as it is has for them.
absl::StatusOr<bool> ArmVerifier::IsEarlierLogp(const Expected& before) {
  at::Tensor& logp = arm_.results[kLogp];
  if (!inputs_varied_ || !logp.defined() || arm_.inputs->free_tokens().empty()) {
    return false;
  }
  Results only;
  only[kLogp] = logp;
  absl::StatusOr<Digests> digest = DigestsOf(*arm_.session, only);
  if (!digest.ok()) {
    return digest.status();
  }
  if (!earlier_logps_.insert((*digest)[kLogp]).second) {
    return true;
  }
  if (logp.sizes() == arm_.inputs->tensors().targets.sizes() &&
      logp.scalar_type() == before.logp_of_free_tokens.scalar_type()) {
    logp.index_copy_(0, FreeTokens(), before.logp_of_free_tokens);
  }
  return false;
}

absl::Status ArmVerifier::Verify() {
  const Expected& before = *expected_[arm_.inputs->set()];
  absl::StatusOr<bool> earlier = IsEarlierLogp(before);
  if (!earlier.ok()) {
    return earlier.status();
  }
  Unify(arm_.inputs->sign(), &arm_.results);
  absl::StatusOr<Digests> digests = DigestsOf(*arm_.session, arm_.results);
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
  if (arm_.dispatch.path != expected_dispatch_.path || arm_.dispatch.fallback != expected_dispatch_.fallback) {
    return Error(
        WrongResult::kTimedDifferently,
        absl::StrCat("took another path in a block than before it: ", arm_.dispatch.path, " instead of ",
                     expected_dispatch_.path, arm_.dispatch.reason.empty() ? "" : ", because ", arm_.dispatch.reason));
  }
  return NothingElseChanged();
}

// Why unified results with `digests` are not Prepare's.
absl::Status ArmVerifier::ExplainTimed(std::size_t which, const Digests& digests) {
  const char* const name = kResultNames[which];
  if (absl::Status status = Settled(which, digests); !status.ok()) {
    return status;
  }
  Unify(arm_.inputs->sign(), &arm_.results);  // The sign again: as they came.
  absl::StatusOr<Digests> came = DigestsOf(*arm_.session, arm_.results);
  if (!came.ok()) {
    return came.status();
  }
  for (const std::optional<Expected>& prepared : expected_) {
    if (arm_.results[which].defined() && (*came)[which] == prepared->unified[which]) {
      return CachedError(name);
    }
  }
  return Explain(which, {}, *came, WrongResult::kTimedDifferently,
                 absl::StrCat("computes otherwise when timed: ", name,
                              " after a call in a block is not what it computed from the same inputs before the "
                              "block"));
}

}  // namespace keval::measure
