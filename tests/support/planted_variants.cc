#include "tests/support/planted_variants.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

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

// portable_matmul_add with `fault` called after each backward; `call` counts from 1.
class Planted : public Variant {
 public:
  using Fault = std::function<void(int call, const VariantInputs& inputs, Gradients* gradients, Dispatch* dispatch)>;
  // The right one is looked up here: Describe is called under the registry's lock.
  Planted(std::string name, Fault fault)
      : right_(**linear_logp::FindVariant("portable_matmul_add")), name_(std::move(name)), fault_(std::move(fault)) {}

  linear_logp::VariantDescription Describe() const override {
    linear_logp::VariantDescription description = right_.Describe();
    description.name = name_;
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
    return right_.Forward(inputs, options, check, dispatch);
  }
  Gradients Backward(const VariantInputs& inputs, const Options& options, Want want, const ContinueCheck& check,
                     Dispatch* dispatch) const override {
    Gradients gradients = right_.Backward(inputs, options, want, check, dispatch);
    fault_(++calls_, inputs, &gradients, dispatch);
    return gradients;
  }

 private:
  const Variant& right_;
  std::string name_;
  Fault fault_;
  mutable std::atomic<int> calls_ = 0;
};

void Abort() {
  constexpr char kWords[] = "planted last words\n";
  const ssize_t written = write(STDERR_FILENO, kWords, sizeof(kWords) - 1);
  static_cast<void>(written);
  std::abort();
}

void ChangeHidden(const VariantInputs& inputs) { inputs.hidden.narrow(0, 0, 1).narrow(1, 0, 1).add_(1); }

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

}  // namespace

std::vector<std::unique_ptr<linear_logp::ScopedVariantForTest>> PlantVariants() {
  std::vector<std::unique_ptr<linear_logp::ScopedVariantForTest>> planted;
  const auto plant = [&planted](const char* name, Planted::Fault fault) {
    planted.push_back(
        std::make_unique<linear_logp::ScopedVariantForTest>(std::make_unique<Planted>(name, std::move(fault))));
  };
  plant("planted_right", [](int, const VariantInputs&, Gradients*, Dispatch*) {});
  plant("planted_throws",
        [](int, const VariantInputs&, Gradients*, Dispatch*) { throw std::runtime_error("a planted error"); });
  plant("planted_aborts", [](int, const VariantInputs&, Gradients*, Dispatch*) { Abort(); });
  plant("planted_aborts_late", [](int call, const VariantInputs&, Gradients*, Dispatch*) {
    if (call >= kLate) {
      Abort();
    }
  });
  plant("planted_segfaults", [](int, const VariantInputs&, Gradients*, Dispatch*) { std::raise(SIGSEGV); });
  plant("planted_exits", [](int, const VariantInputs&, Gradients*, Dispatch*) { _exit(7); });
  plant("planted_hangs", [](int, const VariantInputs&, Gradients*, Dispatch*) {
    for (;;) {
      pause();
    }
  });
  plant("planted_slow", [](int, const VariantInputs&, Gradients*, Dispatch*) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  });
  plant("planted_out_of_memory", [](int, const VariantInputs& inputs, Gradients* gradients, Dispatch*) {
    gradients->grad_weight = at::empty({std::int64_t{1} << 48}, inputs.hidden.options().dtype(at::kFloat));
  });
  plant("planted_wrong",
        [](int, const VariantInputs&, Gradients* gradients, Dispatch*) { gradients->grad_weight.mul_(1.001); });
  plant("planted_cached", [cache = std::make_shared<Cache>()](int, const VariantInputs&, Gradients* gradients,
                                                              Dispatch*) { cache->Answer(gradients); });
  plant("planted_skips_late", [](int call, const VariantInputs&, Gradients* gradients, Dispatch*) {
    if (call >= kLate) {
      gradients->grad_weight = at::empty_like(gradients->grad_weight);
    }
  });
  plant("planted_changes_inputs",
        [](int, const VariantInputs& inputs, Gradients*, Dispatch*) { ChangeHidden(inputs); });
  plant("planted_changes_late", [](int call, const VariantInputs& inputs, Gradients*, Dispatch*) {
    if (call >= kLate) {
      ChangeHidden(inputs);
    }
  });
  plant("planted_falls_back", [](int, const VariantInputs&, Gradients*, Dispatch* dispatch) {
    dispatch->fallback = true;
    dispatch->path = "another path";
    dispatch->reason = "planted";
  });
  plant("planted_logs", [](int, const VariantInputs& inputs, Gradients*, Dispatch*) {
    std::ofstream(std::getenv("KEVAL_PLANTED_LOG"), std::ios::app)
        << absl::StrCat(getpid(), " ", inputs.hidden.size(0), "\n");
  });
  return planted;
}

}  // namespace keval::testing
