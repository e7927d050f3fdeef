#include "server/serving_state.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "base/field_error.h"

namespace keval::server {
namespace {

std::chrono::steady_clock::time_point In(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

TEST(ServingStateTest, DrainingChangesReadyAndDevicesNeverLive) {
  ServingState state({"cpu"});
  for (const char* service : {"", "live", "ready", "cpu"}) EXPECT_EQ(state.Health(service), true) << service;
  state.StartDraining();
  EXPECT_EQ(state.Health(""), true);
  EXPECT_EQ(state.Health("live"), true);
  EXPECT_EQ(state.Health("ready"), false);
  EXPECT_EQ(state.Health("cpu"), false);
  EXPECT_EQ(state.Health("cuda:7"), std::nullopt);
}

TEST(ServingStateTest, LostDeviceIsNotReadyAndTheOthersServe) {
  ServingState state({"cuda:0", "cpu"});
  state.DeviceLost("cuda:0");
  EXPECT_EQ(state.Health("cuda:0"), false);
  EXPECT_EQ(state.Health("cpu"), true);
  EXPECT_EQ(state.Health("ready"), false);
  EXPECT_EQ(state.Health("live"), true);
  EXPECT_TRUE(state.any_device_lost());
}

TEST(ServingStateTest, DrainingRefusesNewCallsAndWaitsForTheOthers) {
  ServingState state({"cpu"});
  std::optional<ServingState::Ticket> ticket;
  {
    absl::StatusOr<ServingState::Ticket> entered = state.Enter();
    ASSERT_TRUE(entered.ok());
    ticket.emplace(*std::move(entered));
  }
  state.StartDraining();
  const absl::Status refused = state.Enter().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(GetRetryDelayMs(refused).has_value());
  EXPECT_FALSE(state.WaitUntilIdle(In(std::chrono::milliseconds(20))));
  std::thread call([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ticket.reset();
  });
  EXPECT_TRUE(state.WaitUntilIdle(In(std::chrono::seconds(10))));
  call.join();
}

TEST(ServingStateTest, EndCallsTellsThem) {
  ServingState state({"cpu"});
  EXPECT_TRUE(state.EndStatus().ok());
  state.EndCalls();
  EXPECT_EQ(state.EndStatus().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(GetRetryDelayMs(state.EndStatus()).has_value());
}

TEST(ServingStateTest, WaitForHealthChangeReturnsOnDrain) {
  ServingState state({"cpu"});
  std::thread drain([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    state.StartDraining();
  });
  const auto start = std::chrono::steady_clock::now();
  state.WaitForHealthChange("live", true, In(std::chrono::seconds(30)));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  drain.join();
}

}  // namespace
}  // namespace keval::server
