// A sticky device error: told as such, the engine unhealthy from then on. Each runs in a process of its own, whose
// context it loses.
#include <ATen/ops/index_select.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "core/linear_logp/host_tensor.h"
#include "tests/support/operator_testing.h"

namespace keval::linear_logp {
namespace {

// Its kernel reads far outside a tensor, which ends in a device-side assertion.
class ReadsOutside final : public Variant {
 public:
  VariantDescription Describe() const override { return {.name = "reads_outside", .cuda = true}; }
  Support Supports(const Problem& /*problem*/, const Options& /*options*/, const Device& /*device*/) const override {
    return {.supported = true};
  }
  std::int64_t ScratchBytes(const Problem& /*problem*/, const Options& /*options*/, Want /*want*/) const override {
    return 0;
  }
  at::Tensor Forward(const VariantInputs& inputs, const Options& /*options*/, const ContinueCheck& /*check*/,
                     Dispatch* /*dispatch*/) const override {
    return at::index_select(inputs.grad_logp.defined() ? inputs.grad_logp : inputs.hidden.select(1, 0), 0,
                            inputs.targets.add(1 << 20));
  }
  Gradients Backward(const VariantInputs& /*inputs*/, const Options& /*options*/, Want /*want*/,
                     const ContinueCheck& /*check*/, Dispatch* /*dispatch*/) const override {
    return {};
  }
};

struct Request {
  VariantInputs tensors;
  Inputs inputs;
  Problem problem;
};

Request MakeRequest() {
  Request request;
  request.tensors = test_support::ToInputs(test_support::SeededValues(4, 8, 17, false, 1), at::kFloat);
  Inputs& inputs = request.inputs;
  inputs.hidden = ToHost(request.tensors.hidden, {4, 8});
  inputs.weight = ToHost(request.tensors.weight, {17, 8});
  inputs.targets = ToHost(request.tensors.targets, {4});
  request.problem =
      ValidateProblem({.hidden = inputs.hidden.spec, .weight = inputs.weight.spec, .targets = inputs.targets.spec},
                      false)
          .value();
  return request;
}

// 0 where everything was as it should be; else the number of what was not.
int LoseTheDevice() {
  auto engine = Engine::Create(test_support::TestDevice());
  if (!engine.ok()) return 1;
  const auto [tensors, inputs, problem] = MakeRequest();
  if (!(*engine)->Forward(problem, {}, inputs, nullptr).ok()) return 2;
  const ScopedVariantForTest scoped(std::make_unique<ReadsOutside>());
  const absl::Status lost = (*engine)->Forward(problem, {.variant = "reads_outside"}, inputs, nullptr).status();
  std::fputs(lost.ToString().c_str(), stderr);
  if (lost.code() != absl::StatusCode::kAborted) return 3;
  if ((*engine)->Healthy()) return 4;
  // Every later call, of a sound variant too.
  if ((*engine)->Forward(problem, {}, inputs, nullptr).status().code() != absl::StatusCode::kAborted) return 5;
  return 0;
}

// The same, of a device that is lost between two calls: the question for free memory meets it first.
int LoseTheDeviceBetweenCalls() {
  auto engine = Engine::Create(test_support::TestDevice());
  if (!engine.ok()) return 1;
  const auto [tensors, inputs, problem] = MakeRequest();
  if (!(*engine)->Forward(problem, {}, inputs, nullptr).ok()) return 2;
  try {
    at::index_select(tensors.hidden, 0, tensors.targets.add(1 << 20)).cpu();
    return 3;
  } catch (const c10::Error&) {
    if (!(*engine)->Healthy()) return 4;  // Nobody has told it yet.
  }
  const absl::Status lost = (*engine)->Forward(problem, {}, inputs, nullptr).status();
  std::fputs(lost.ToString().c_str(), stderr);
  if (lost.code() != absl::StatusCode::kAborted) return 5;
  if ((*engine)->Healthy()) return 6;
  return (*engine)->FreeBytes().status().code() == absl::StatusCode::kAborted ? 0 : 7;
}

using LostDeviceDeathTest = test_support::OperatorTest;

TEST_F(LostDeviceDeathTest, AStickyErrorLeavesTheEngineUnhealthy) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(LoseTheDevice()), ::testing::ExitedWithCode(0), "is lost");
}

TEST_F(LostDeviceDeathTest, OneLostBetweenCallsIsToldAtTheNextOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(LoseTheDeviceBetweenCalls()), ::testing::ExitedWithCode(0), "is lost");
}

}  // namespace
}  // namespace keval::linear_logp
