// An injected delay on the host: as long as it says, in proportion to the call that it lengthens.
#include "core/measure/delay.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "core/measure/arm.h"
#include "core/measure/block_runner.h"

namespace keval::measure {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::nanoseconds Timed(Delay* delay, std::chrono::milliseconds work) {
  const auto begin = Clock::now();
  EXPECT_TRUE(delay->Begin().ok());
  while (Clock::now() - begin < work) {
  }
  EXPECT_TRUE(delay->End().ok());
  return Clock::now() - begin;
}

TEST(Delay, IsAtLeastItsPartOfTheCall) {
  auto delay = Delay::Create({}, 0.5);
  ASSERT_TRUE(delay.ok()) << delay.status();
  for (const int ms : {2, 10}) {  // Of this very call: what an earlier one took is forgotten.
    const auto took = Timed(delay->get(), std::chrono::milliseconds(ms));
    EXPECT_GE(took, std::chrono::microseconds(1499 * ms));  // Begin itself is before the call.
  }
}

TEST(Delay, OfNothingIsNothing) {
  auto delay = Delay::Create({}, 0);
  ASSERT_TRUE(delay.ok());
  // The machine may hold one call up, hardly each of many.
  auto least = std::chrono::nanoseconds::max();
  for (int i = 0; i < 50; ++i) least = std::min(least, Timed(delay->get(), std::chrono::milliseconds(1)));
  EXPECT_LT(least, std::chrono::microseconds(1100));
}

TEST(Delay, LengthensAnArmsTimedCalls) {
  auto session = DeviceSession::Open({}, 1);
  ASSERT_TRUE(session.ok()) << session.status();
  ArmSpec spec;
  spec.variant = "portable_matmul_add";
  spec.num_tokens = 64;
  spec.hidden_size = 32;
  spec.vocab_size = 500;
  const auto least = [&](std::optional<double> fraction) {
    spec.delay_fraction = fraction;
    auto arm = Arm::Create(spec, 3, session->get());
    EXPECT_TRUE(arm.ok()) << arm.status();
    EXPECT_TRUE((*arm)->Prepare("portable_matmul_add", Region::kForwardBackward).ok());
    std::int64_t shortest = 0;
    for (int i = 0; i < 20; ++i) {
      const auto block = RunBlock({1, 5}, **session, arm->get());
      EXPECT_TRUE(block.ok()) << block.status();  // The results are right with the delay as well.
      for (const std::int64_t ns : block->ns) shortest = shortest == 0 ? ns : std::min(shortest, ns);
    }
    return static_cast<double>(shortest);
  };
  const double plain = least(std::nullopt);
  EXPECT_GT(least(1.0), 1.5 * plain);
  EXPECT_LT(least(0.0), 1.5 * plain);
}

}  // namespace
}  // namespace keval::measure
