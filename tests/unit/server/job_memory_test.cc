// What a round needs of its device's memory, by mode, and the refusal with its numbers.
#include "server/job_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "base/field_error.h"
#include "tests/support/job_fixtures.h"
#include "tests/support/job_server.h"
#include "tests/support/temp_dir.h"

namespace keval::server {
namespace {

using ::testing::HasSubstr;

constexpr WorkerBytes kBytes = {.context = 100, .inputs = 10, .peak = 1};

TEST(JobMemoryTest, CountsThreeContextsOnAGpuAndTwoOnACpu) {
  // Results to compare with are as large as the inputs.
  EXPECT_EQ(RoundBytes(kBytes, false, v1::PROCESS_MODE_CONCURRENT), 300 + 30 + 3 + 10);
  EXPECT_EQ(RoundBytes(kBytes, true, v1::PROCESS_MODE_CONCURRENT), 200 + 20 + 1 + 10);
  EXPECT_EQ(RoundBytes(kBytes, false, v1::PROCESS_MODE_SEQUENTIAL), 300 + 10 + 1 + 10);
  EXPECT_EQ(RoundBytes(kBytes, true, v1::PROCESS_MODE_SEQUENTIAL), 200 + 10 + 1 + 10);
}

TEST(JobMemoryTest, TheLargestIsWhoseRoundTakesMost) {
  const WorkerBytes inputs = {.context = 100, .inputs = 10, .peak = 1};  // 343 side by side on a GPU.
  const WorkerBytes peak = {.context = 100, .inputs = 1, .peak = 12};    // 340, though more in one process.
  const auto largest = LargestWorker({{"a", inputs}, {"b", peak}}, false, v1::PROCESS_MODE_CONCURRENT);
  EXPECT_EQ(largest.inputs, 10);
  EXPECT_EQ(LargestWorker({{"a", inputs}, {"b", {.context = 100, .inputs = 1, .peak = 20}}}, true,
                          v1::PROCESS_MODE_SEQUENTIAL)
                .peak,
            20);
  EXPECT_EQ(RoundBytes(LargestWorker({}, true, v1::PROCESS_MODE_CONCURRENT), true, v1::PROCESS_MODE_CONCURRENT), 0);
}

TEST(JobMemoryTest, TheLeastIsOperandsResultsTableAndAChunk) {
  v1::Shape shape = testing::TestShape(4, 8, 100);
  shape.set_dtype(v1::DATA_TYPE_BFLOAT16);
  shape.set_chunk_elems(200);
  const WorkerBytes least = LeastWorkerBytes(shape, true);
  EXPECT_EQ(least.context, 0);
  EXPECT_EQ(least.inputs, 2 * (4 * 8 + 100 * 8));
  EXPECT_EQ(least.peak, 2 * 4 * 8 + 4 * (100 * 8 + 200) + 2 * 100 * 8);
  EXPECT_GT(LeastWorkerBytes(shape, false).context, 1 << 20);
}

TEST(JobMemoryTest, TheRefusalNamesBothNumbersAndTheOtherMode) {
  v1::DeviceInfo device;
  device.set_name("cuda:0");
  EXPECT_TRUE(CheckRoundFits("primaries[1]", kBytes, device, std::nullopt, v1::PROCESS_MODE_CONCURRENT)
                  .ok());        // Of unknown size.
  device.set_memory_bytes(349);  // A fiftieth, 6, is kept in reserve.
  EXPECT_EQ(ReserveBytes(device), 6);
  EXPECT_TRUE(CheckRoundFits("primaries[1]", kBytes, device, std::nullopt, v1::PROCESS_MODE_CONCURRENT).ok());
  device.set_memory_bytes(348);
  const absl::Status refused =
      CheckRoundFits("primaries[1]", kBytes, device, std::nullopt, v1::PROCESS_MODE_CONCURRENT);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetFieldViolation(refused)->field, "primaries[1]");
  EXPECT_EQ(GetFieldViolation(refused)->value, "343");
  const std::string message(refused.message());
  EXPECT_EQ(GetFieldViolation(refused)->limit, "at most 342 bytes");
  EXPECT_THAT(message,
              HasSubstr("at least 343 bytes side by side; of 348 that cuda:0 has, 6 are kept in reserve, so 342 can "
                        "be had (each process: context 100, inputs 10, a call 1; base's results to compare "
                        "with 10)"));
  EXPECT_THAT(message, HasSubstr("sequential, which is weaker, needs 321 and fits"));
  EXPECT_TRUE(CheckRoundFits("primaries[1]", kBytes, device, std::nullopt, v1::PROCESS_MODE_SEQUENTIAL).ok());
  device.set_memory_bytes(320);
  EXPECT_THAT(std::string(CheckRoundFits("x", kBytes, device, std::nullopt, v1::PROCESS_MODE_CONCURRENT).message()),
              HasSubstr("doesn't fit either"));
  EXPECT_EQ(CheckRoundFits("x", kBytes, device, std::nullopt, v1::PROCESS_MODE_SEQUENTIAL).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(JobMemoryTest, WhatIsFreeNowCountsAndNotWhatTheDeviceHas) {
  v1::DeviceInfo device;
  device.set_name("cuda:0");
  device.set_memory_bytes(1000);  // 20 in reserve.
  EXPECT_TRUE(CheckRoundFits("x", kBytes, device, 363, v1::PROCESS_MODE_CONCURRENT).ok());
  WorkerBytes bytes = kBytes;
  bytes.context_assumed = true;
  const absl::Status refused = CheckRoundFits("x", bytes, device, 362, v1::PROCESS_MODE_CONCURRENT);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  const std::string message(refused.message());
  EXPECT_THAT(message,
              HasSubstr("of 1000 that cuda:0 has, 362 are free and 20 are kept in reserve, so 342 can be had"));
  EXPECT_THAT(message, HasSubstr("context 100, assumed since it can't be measured, inputs 10"));
  EXPECT_THAT(message, HasSubstr("needs 321 and fits"));
  EXPECT_TRUE(CheckRoundFits("x", bytes, device, 341, v1::PROCESS_MODE_SEQUENTIAL).ok());
  EXPECT_FALSE(CheckRoundFits("x", bytes, device, 340, v1::PROCESS_MODE_SEQUENTIAL).ok());
}

// On a full device nothing is free, which is no "unknown".
TEST(JobMemoryTest, NothingFreeIsTooLittle) {
  v1::DeviceInfo device;
  device.set_name("cuda:0");
  device.set_memory_bytes(1000);
  const absl::Status refused = CheckRoundFits("x", kBytes, device, 0.0, v1::PROCESS_MODE_CONCURRENT);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("0 are free and 20 are kept in reserve, so 0 can be had"));
}

// Case planted_: what the processes take is known before they are started, and the refusal says how to go on.
TEST(JobMemoryTest, AMemoryThatIsTooSmallEndsAJobBeforeRoundOneUnlessSequential) {
  const testing::TempDir dir;
  const auto work = std::make_shared<testing::FakeWork>();
  const auto run = [&](const v1::BenchmarkSpec& spec) {
    testing::JobServer server(dir.path(), work);
    const std::string name = server.Create(spec).name();
    server.Start();
    return server.WaitForEnd(name);
  };
  constexpr double kGiB = 1 << 30;
  work->worker_bytes = {.context = 0.25 * kGiB, .inputs = 1.75 * kGiB, .peak = 3 * kGiB};  // The CPU has 8 GiB.
  auto spec = testing::TestSpec();
  const auto refused = run(spec);
  EXPECT_EQ(refused.verdict(), "FAILED");
  EXPECT_EQ(refused.reason(), "MEMORY_EXCEEDED");
  EXPECT_EQ(refused.failure_cause(), "infrastructure");
  EXPECT_THAT(refused.detail(), HasSubstr("need at least 9395240960 bytes side by side; of 8589934592 that cpu has, "
                                          "171798691 are kept in reserve, so 8418135901 can be had"));
  EXPECT_THAT(refused.detail(), HasSubstr("sequential, which is weaker, needs 7516192768 and fits"));
  EXPECT_EQ(work->Calls("round 0"), 0);
  spec.mutable_procedure()->set_process_mode(v1::PROCESS_MODE_SEQUENTIAL);
  const auto job = run(spec);
  EXPECT_EQ(job.verdict(), "EQUIVALENT");
  EXPECT_EQ(job.plan().predicted_memory_bytes(), 7516192768);
  EXPECT_THAT(job.detail(), HasSubstr("process_mode sequential: a weaker procedure"));
  work->free_bytes = 7516192768 + 171798691 - 1;  // One byte too few, others having taken the rest.
  const auto crowded = run(spec);                 // Tried again, for others may go: a single reading ends nothing.
  EXPECT_EQ(crowded.reason(), "MEMORY_EXCEEDED");
  EXPECT_EQ(work->Calls("pilot"), 1 + 1 + 4);
  EXPECT_THAT(crowded.detail(),
              HasSubstr("7687991458 are free and 171798691 are kept in reserve, so 7516192767 can be had"));
  *work->free_bytes += 1;
  EXPECT_EQ(run(spec).verdict(), "EQUIVALENT");
}

TEST(JobMemoryTest, MemoryThatOthersGiveBackInTimeIsEnough) {
  const testing::TempDir dir;
  const auto work = std::make_shared<testing::FakeWork>();
  work->worker_bytes = {.context = 0.25 * (1 << 30), .inputs = 0.5 * (1 << 30), .peak = 1 << 30};
  work->free_bytes = 0;
  work->on_pilot = [&](int attempt) -> std::optional<WorkFailure> {
    if (attempt == 1) work->free_bytes = 8e9;
    return std::nullopt;
  };
  testing::JobServer server(dir.path(), work);
  const std::string name = server.Create(testing::TestSpec()).name();
  server.Start();
  EXPECT_EQ(server.WaitForEnd(name).verdict(), "EQUIVALENT");
  EXPECT_EQ(work->Calls("pilot"), 2);
  const auto losses = server.store().Losses(name);
  ASSERT_TRUE(losses.ok()) << losses.status();
  ASSERT_EQ(losses->size(), 1U);
  EXPECT_EQ(losses->front().cause, "infrastructure");
  EXPECT_EQ(losses->front().reason, "MEMORY_EXCEEDED");
  EXPECT_THAT(losses->front().detail, HasSubstr("0 are free"));
}

}  // namespace
}  // namespace keval::server
