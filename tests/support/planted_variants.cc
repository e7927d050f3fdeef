#include "tests/support/planted_variants.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace keval::testing {
namespace {

using linear_logp::ContinueCheck;
using linear_logp::Dispatch;
using linear_logp::Gradients;
using linear_logp::Options;
using linear_logp::Variant;
using linear_logp::VariantInputs;
using linear_logp::Want;

constexpr int kLate = 9;  // Beyond the calls before an arm's first block.

class Planted : public Variant {
 public:
  // The right one is looked up here: Describe is called under the registry's lock.
  Planted(std::string name, Fault fault, LogpFault logp_fault, std::int64_t only_vocab_size, bool foreign)
      : right_(**linear_logp::FindVariant("portable_matmul_add")),
        name_(std::move(name)),
        fault_(std::move(fault)),
        logp_fault_(std::move(logp_fault)),
        only_vocab_size_(only_vocab_size),
        foreign_(foreign) {}

  linear_logp::VariantDescription Describe() const override {
    linear_logp::VariantDescription description = right_.Describe();
    description.name = name_;
    if (foreign_) description.production_path = linear_logp::ProductionPath::kNone;
    return description;
  }
  linear_logp::Support Supports(const linear_logp::Problem& problem, const Options& options,
                                const linear_logp::Device& device) const override {
    return right_.Supports(problem, options, device);
  }
  std::int64_t ScratchBytes(const linear_logp::Problem& problem, const Options& options, Want want) const override {
    return right_.ScratchBytes(problem, options, want);
  }
  at::Tensor Forward(const VariantInputs& inputs, const Options& options, const ContinueCheck& check,
                     Dispatch* dispatch) const override {
    at::Tensor logp = right_.Forward(inputs, options, check, dispatch);
    TellName(dispatch);
    if (logp_fault_ && Applies(inputs)) {
      logp_fault_(inputs, &logp);
    }
    return logp;
  }
  Gradients Backward(const VariantInputs& inputs, const Options& options, Want want, const ContinueCheck& check,
                     Dispatch* dispatch) const override {
    const std::function<Gradients(const VariantInputs&)> right = [&](const VariantInputs& of) {
      return right_.Backward(of, options, want, check, dispatch);
    };
    Gradients gradients = right(inputs);
    TellName(dispatch);
    if (Applies(inputs)) {
      fault_({++calls_, inputs, right, &gradients, dispatch});
    }
    return gradients;
  }

 private:
  bool Applies(const VariantInputs& inputs) const {
    return only_vocab_size_ == 0 || inputs.weight.size(0) == only_vocab_size_;
  }
  void TellName(Dispatch* dispatch) const {
    if (dispatch != nullptr) dispatch->variant = name_;
  }

  const Variant& right_;
  std::string name_;
  Fault fault_;
  LogpFault logp_fault_;
  std::int64_t only_vocab_size_;
  bool foreign_;
  mutable std::atomic<int> calls_ = 0;
};

Fault Late(Fault fault) {
  return [fault = std::move(fault)](const Call& call) {
    if (call.number >= kLate) {
      fault(call);
    }
  };
}

void Log(const std::string& line) {
  if (const char* const path = std::getenv("KEVAL_PLANTED_LOG"); path != nullptr) {
    std::ofstream(path, std::ios::app) << line + "\n";
  }
}

// Of the other processes that this one's parent has.
std::int64_t ResidentBytesOfSiblings() {
  std::int64_t pages = 0;
  std::ifstream children(absl::StrCat("/proc/", getppid(), "/task/", getppid(), "/children"));
  for (std::int64_t child = 0; children >> child;) {
    if (child == getpid()) continue;
    std::ifstream statm(absl::StrCat("/proc/", child, "/statm"));
    std::int64_t size = 0;
    std::int64_t resident = 0;
    if (statm >> size >> resident) pages += resident;
  }
  return pages * sysconf(_SC_PAGESIZE);
}

void Abort(const Call& /*call*/) {
  constexpr char kWords[] = "planted last words\n";
  const ssize_t written = write(STDERR_FILENO, kWords, sizeof(kWords) - 1);
  static_cast<void>(written);
  std::abort();
}

// The same in every process.
std::size_t DigestOfWeight(const Call& call) {
  constexpr std::size_t kMostBytes = 4096;
  const at::Tensor& weight = call.inputs.weight;
  const auto* const bytes = static_cast<const char*>(weight.const_data_ptr());
  return std::hash<std::string_view>()({bytes, std::min<std::size_t>(weight.nbytes(), kMostBytes)});
}

void LogCall(const Call& call) {
  Log(absl::StrCat(getpid(), " ", call.inputs.hidden.size(0), " ", ResidentBytesOfSiblings(), " ",
                   DigestOfWeight(call)));
}

void Hang(const Call& call) {
  LogCall(call);
  for (;;) {
    pause();
  }
}

void ChangeHidden(const Call& call) { call.inputs.hidden.slice(0, 0, 1).slice(1, 0, 1).add_(1); }  // If any.

void Skip(const Call& call) { call.gradients->grad_weight = at::zeros_like(call.gradients->grad_weight); }

// To 10 bits after the leading one, to nearest.
at::Tensor Rounded(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.scalar_type() != at::kFloat) {
    return tensor;
  }
  constexpr double kStep = 1 + (1 << 13);  // Dekker's splitting: 24 - 11 bits go.
  const at::Tensor scaled = tensor * kStep;
  return scaled - (scaled - tensor);
}

void RoundOperands(const Call& call) {
  VariantInputs rounded = call.inputs;
  rounded.hidden = Rounded(rounded.hidden);
  rounded.weight = Rounded(rounded.weight);
  *call.gradients = call.right(rounded);
}

class Cache {
 public:
  void Answer(Gradients* gradients) {
    if (!kept_.has_value()) {
      kept_ = Copy(*gradients);
    }
    *gradients = Copy(*kept_);
  }

 private:
  static at::Tensor Copy(const at::Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; }
  static Gradients Copy(const Gradients& gradients) {
    return {Copy(gradients.grad_hidden), Copy(gradients.grad_weight), Copy(gradients.grad_bias)};
  }
  std::optional<Gradients> kept_;
};

std::int64_t SumOfTargets(const VariantInputs& inputs) { return inputs.targets.sum().item<std::int64_t>(); }

// Of each set of targets the first results.
class Memo {
 public:
  void Answer(const Call& call) { gradients_[SumOfTargets(call.inputs)].Answer(call.gradients); }
  void AnswerLogp(const VariantInputs& inputs, at::Tensor* logp) {
    *logp = logps_.try_emplace(SumOfTargets(inputs), logp->clone()).first->second.clone();
  }

 private:
  std::map<std::int64_t, Cache> gradients_;
  std::map<std::int64_t, at::Tensor> logps_;
};

class Straggler {
 public:
  Straggler() = default;
  Straggler(const Straggler&) = delete;
  Straggler& operator=(const Straggler&) = delete;
  ~Straggler() { Join(); }

  void FinishLater(Gradients* gradients) {
    Join();
    const at::Tensor right = gradients->grad_weight;
    gradients->grad_weight = at::zeros_like(right);
    thread_ = std::thread([right, target = gradients->grad_weight] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      std::memcpy(target.data_ptr(), right.const_data_ptr(), right.nbytes());
    });
  }

 private:
  void Join() {
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  std::thread thread_;
};

std::vector<std::pair<std::string, Fault>> Faults() {
  return {
      {"throws", [](const Call&) { throw std::runtime_error("a planted error"); }},
      {"aborts", Abort},
      {"aborts_late", Late(Abort)},
      {"segfaults", [](const Call&) { std::raise(SIGSEGV); }},
      {"exits", [](const Call&) { _exit(7); }},
      {"awaits_killer",
       [](const Call&) {
         Log(absl::StrCat(getpid()));
         for (;;) pause();
       }},
      {"leaves_helper",
       [](const Call&) {
         if (fork() == 0) {
           for (;;) pause();
         }
         _exit(7);
       }},
      {"hangs", Hang},
      {"hangs_late", Late(Hang)},
      {"slow",
       [](const Call& call) {
         LogCall(call);
         std::this_thread::sleep_for(std::chrono::milliseconds(30));
       }},
      {"out_of_memory",
       [](const Call& call) {
         call.gradients->grad_weight =
             at::empty({std::int64_t{1} << 48}, call.inputs.hidden.options().dtype(at::kFloat));
       }},
      {"illegal_access",
       [](const Call&) { throw std::runtime_error("CUDA error: an illegal memory access was encountered"); }},
      {"loses_device", [](const Call&) { throw std::runtime_error("CUDA error: GPU is lost"); }},
      {"falls_back",
       [](const Call& call) {
         if (call.dispatch == nullptr) return;
         call.dispatch->fallback = true;
         call.dispatch->path = "another path";
         call.dispatch->reason = "planted";
       }},
      {"logs", LogCall},
      {"wrong",
       [](const Call& call) {  // Before it is rounded to the type of the results.
         VariantInputs larger = call.inputs;
         larger.grad_logp = larger.grad_logp * 1.001;
         call.gradients->grad_weight = call.right(larger).grad_weight;
       }},
      {"nan", [](const Call& call) { call.gradients->grad_weight.fill_(std::numeric_limits<double>::quiet_NaN()); }},
      {"wrong_shape", [](const Call& call) { call.gradients->grad_weight = call.gradients->grad_weight.t().clone(); }},
      {"wrong_dtype",
       [](const Call& call) { call.gradients->grad_weight = call.gradients->grad_weight.to(at::kDouble); }},
      {"cached", [cache = std::make_shared<Cache>()](const Call& call) { cache->Answer(call.gradients); }},
      {"memoises", [memo = std::make_shared<Memo>()](const Call& call) { memo->Answer(call); }},
      {"skips_late", Late(Skip)},
      {"falls_back_late", Late([](const Call& call) {
         if (call.dispatch == nullptr) return;
         call.dispatch->fallback = true;
         call.dispatch->path = "another path";
         call.dispatch->reason = "planted";
       })},
      {"skips_most", Late([](const Call& call) {
         if (call.number % 7 != 0) Skip(call);
       })},
      {"not_repeatable",
       [](const Call& call) {  // Within the distance that two summing orders may have, and never the same.
         call.gradients->grad_weight.mul_(1 + 2e-7 * call.number);
       }},
      {"partly_written", WritePartly},
      {"recycled", AddFreshMemory},
      {"unfinished",
       [straggler = std::make_shared<Straggler>()](const Call& call) { straggler->FinishLater(call.gradients); }},
      {"rounded", RoundOperands},
      {"changes_precision", [](const Call&) { at::globalContext().setAllowTF32CuBLAS(true); }},
      {"changes_inputs", ChangeHidden},
      {"changes_late", Late(ChangeHidden)},
  };
}

}  // namespace

void WritePartly(const Call& call) {
  const at::Tensor right = call.gradients->grad_weight;
  const at::Tensor partly = at::empty_like(right);
  const std::int64_t rows = right.size(0) - (right.size(0) + 3) / 4;
  partly.narrow(0, 0, rows).copy_(right.narrow(0, 0, rows));
  call.gradients->grad_weight = partly;
}

void AddFreshMemory(const Call& call) {
  at::Tensor& right = call.gradients->grad_weight;
  right.add_(at::empty_like(right));
}

std::unique_ptr<linear_logp::ScopedVariantForTest> Plant(std::string name, Fault fault, LogpFault logp_fault,
                                                         std::int64_t only_vocab_size) {
  const bool foreign = absl::StrContains(name, "_foreign_");
  return std::make_unique<linear_logp::ScopedVariantForTest>(
      std::make_unique<Planted>(std::move(name), std::move(fault), std::move(logp_fault), only_vocab_size, foreign));
}

std::vector<std::unique_ptr<linear_logp::ScopedVariantForTest>> PlantVariants() {
  std::vector<std::unique_ptr<linear_logp::ScopedVariantForTest>> planted;
  for (const char* right : {"right", "foreign_right", "harness_crashes", "harness_crashes_in_contract", "harness_hangs",
                            "harness_out_of_memory", "harness_babbles", "throttled"}) {
    planted.push_back(Plant(absl::StrCat("planted_", right), [](const Call&) {}));
  }
  for (const auto& [prefix, only] :
       {std::pair("planted_", std::int64_t{0}), std::pair("planted_sly_", kSlyVocabSize),
        std::pair("planted_foreign_", std::int64_t{0}), std::pair("planted_sly_foreign_", kSlyVocabSize)}) {
    for (auto& [name, fault] : Faults()) {  // With a state of their own.
      planted.push_back(Plant(absl::StrCat(prefix, name), std::move(fault), nullptr, only));
    }
    const auto answer = [memo = std::make_shared<Memo>()](const VariantInputs& inputs, at::Tensor* logp) {
      memo->AnswerLogp(inputs, logp);
    };
    planted.push_back(Plant(
        absl::StrCat(prefix, "memoises_logp"), [](const Call&) {}, answer, only));
  }
  return planted;
}

}  // namespace keval::testing
