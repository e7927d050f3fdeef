// P10: the thread's autocast state is set, kept from going stale, and put back.
#include "core/linear_logp/autocast.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/matmul.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/operator_testing.h"

namespace keval::linear_logp {
namespace {

using test_support::Compute;
using test_support::Result;
using test_support::SameBits;
using test_support::ToInputs;

struct ThreadState {
  bool enabled;
  at::ScalarType dtype;
  bool cache;
  int nesting;

  static ThreadState Read(c10::DeviceType type) {
    // Nesting can only be read by moving it.
    at::autocast::increment_nesting();
    const int nesting = at::autocast::decrement_nesting();
    return {at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type),
            at::autocast::is_autocast_cache_enabled(), nesting};
  }
  friend bool operator==(const ThreadState&, const ThreadState&) = default;
};

class AutocastTest : public test_support::OperatorTest {
 protected:
  const c10::DeviceType type_ = test_support::TestTorchDevice().type();
};

TEST_F(AutocastTest, P10AScopeSetsAllFourAndPutsAllFourBack) {
  const ThreadState before = ThreadState::Read(type_);
  EXPECT_FALSE(AutocastEnabled(type_));
  {
    const AutocastScope outer(type_, Autocast::kFloat16);
    EXPECT_EQ(ThreadState::Read(type_), (ThreadState{true, at::kHalf, false, before.nesting + 1}));
    {
      const AutocastScope inner(type_, Autocast::kBFloat16);
      EXPECT_EQ(ThreadState::Read(type_), (ThreadState{true, at::kBFloat16, false, before.nesting + 2}));
      const AutocastScope off(type_, Autocast::kNone);
      EXPECT_FALSE(AutocastEnabled(type_));
    }
    EXPECT_EQ(ThreadState::Read(type_), (ThreadState{true, at::kHalf, false, before.nesting + 1}));
  }
  EXPECT_EQ(ThreadState::Read(type_), before);
}

TEST_F(AutocastTest, P10AnExceptionPutsItBackToo) {
  const ThreadState before = ThreadState::Read(type_);
  try {
    const AutocastScope scope(type_, Autocast::kBFloat16);
    throw Stopped{absl::CancelledError("")};
  } catch (const Stopped&) {
    EXPECT_EQ(ThreadState::Read(type_), before);
  }
  EXPECT_EQ(ThreadState::Read(type_), before);
}

TEST_F(AutocastTest, P10TheStateIsTheThreadsOwn) {
  const AutocastScope scope(type_, Autocast::kBFloat16);
  bool enabled_elsewhere = true;
  std::thread([&] { enabled_elsewhere = AutocastEnabled(type_); }).join();
  EXPECT_FALSE(enabled_elsewhere);
  EXPECT_TRUE(AutocastEnabled(type_));
}

TEST_F(AutocastTest, P10AnotherKindOfDeviceIsLeftAlone) {
  const c10::DeviceType other = type_ == c10::kCPU ? c10::kCUDA : c10::kCPU;
  const AutocastScope scope(type_, Autocast::kBFloat16);
  EXPECT_FALSE(AutocastEnabled(other));
}

TEST_F(AutocastTest, P10AWeightChangedInPlaceBetweenTwoCallsIsSeen) {
  const Options options = {.autocast = Autocast::kBFloat16};
  VariantInputs inputs = ToInputs(test_support::SeededValues(6, 8, 17, true, 3), at::kFloat);
  inputs.weight.set_requires_grad(true);  // What the weight cache takes: a leaf that requires a gradient.
  at::autocast::set_autocast_cache_enabled(true);
  const AutocastScope callers(type_, Autocast::kBFloat16);
  at::autocast::set_autocast_cache_enabled(true);  // A caller whose own scope caches.
  for (const std::string& variant : test_support::kVariants) {
    const Result before = Compute(variant, inputs, options);
    inputs.weight.detach().mul_(-2);
    const Result after = Compute(variant, inputs, options);
    VariantInputs fresh = inputs;
    fresh.weight = inputs.weight.detach().clone();
    const Result want = Compute(variant, fresh, options);
    EXPECT_FALSE(SameBits(before.logp, after.logp)) << variant;
    EXPECT_TRUE(SameBits(want.logp, after.logp)) << variant;
    EXPECT_TRUE(SameBits(want.gradients.grad_hidden, after.gradients.grad_hidden)) << variant;
  }
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
}

}  // namespace
}  // namespace keval::linear_logp
