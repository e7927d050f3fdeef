// What is said and left behind when a worker process fails. Faults come from keval-worker-planted
// (tests/support/planted_variants.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/worker_round_collector.h"
#include "tests/integration/worker_rounds.h"
#include "tests/support/temp_dir.h"

namespace keval::server {
namespace {

using testing::Arms;
using testing::Carry;
using testing::ChildrenOf;
using testing::CollectorOf;
using testing::ExpectNoChildren;
using testing::FailureOf;
using ::testing::HasSubstr;
using testing::PlantedWorkers;
using testing::Real;
using testing::Series;
using testing::Value;

WorkFailure RoundFailure(const JobArms& arms) {
  DeviceLease lease;
  auto collector = PlantedWorkers();
  WorkFailure failure = FailureOf(collector.Round(arms, Series(), 0, &lease, Carry));
  ExpectNoChildren();
  return failure;
}

struct Fault {
  const char* variant;
  const char* reason;
  const char* detail;
  bool is_contract;
  // What a failure says, in place of its bytes.
  friend void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.variant; }
};
class FaultTest : public ::testing::TestWithParam<Fault> {};

TEST_P(FaultTest, IsBlamedOnItsArm) {
  const Fault& fault = GetParam();
  JobArms arms = Arms(fault.variant);
  arms.hang_timeout_seconds = std::string(fault.reason) == "HUNG" ? 1 : 60;
  const WorkFailure candidate = RoundFailure(arms);
  EXPECT_EQ(candidate.cause, "candidate");
  EXPECT_EQ(candidate.reason, fault.reason) << candidate.detail;
  EXPECT_EQ(candidate.is_contract, fault.is_contract);
  EXPECT_THAT(candidate.detail, HasSubstr(fault.detail));
  EXPECT_THAT(candidate.detail, HasSubstr(fault.variant));
}

INSTANTIATE_TEST_SUITE_P(
    planted_worker, FaultTest,
    ::testing::Values(Fault{"planted_aborts", "CRASHED", "SIGABRT; it last wrote: planted last words", false},
                      Fault{"planted_segfaults", "CRASHED", "SIGSEGV", false},
                      Fault{"planted_exits", "CRASHED", "exited with code 7", false},
                      Fault{"planted_leaves_helper", "CRASHED", "exited with code 7", false},
                      Fault{"planted_throws", "CRASHED", "a planted error", false},
                      Fault{"planted_hangs", "HUNG", "did not answer within", false},
                      Fault{"planted_out_of_memory", "OUT_OF_MEMORY", "ran out of memory", false},
                      Fault{"planted_illegal_access", "ILLEGAL_ACCESS", "poisoned its device", false},
                      Fault{"planted_wrong", "WRONG_RESULT", "grad_weight", true},
                      Fault{"planted_cached", "CACHED_RESULT", "grad_", true},
                      Fault{"planted_skips_late", "TIMED_DIFFERENTLY", "otherwise when timed", true},
                      Fault{"planted_changes_inputs", "INPUTS_CHANGED", "hidden", true}),
    [](const auto& info) { return std::string(info.param.variant); });

TEST(WorkerFaultTest, BasesFaultIsBases) {
  JobArms arms = Arms("portable_addmm");
  arms.base_variant = "planted_aborts";
  EXPECT_EQ(RoundFailure(arms).cause, "base");
}

struct HarnessFault {
  const char* variant;
  const char* reason;
  const char* detail;
};
class HarnessFaultTest : public ::testing::TestWithParam<HarnessFault> {};

TEST_P(HarnessFaultTest, IsNotBlamedOnTheArm) {
  JobArms arms = Arms(GetParam().variant);
  arms.hang_timeout_seconds = std::string(GetParam().reason) == "HUNG" ? 1 : 60;
  DeviceLease lease;
  auto collector = PlantedWorkers();
  SeriesRun run = Series(1)[0];
  run.shape.hidden_size = 4096;  // Inputs that need an allocation of their own.
  const WorkFailure failure = FailureOf(collector.Round(arms, {run}, 0, &lease, Carry));
  EXPECT_EQ(failure.cause, "harness") << failure.detail;
  EXPECT_EQ(failure.reason, GetParam().reason) << failure.detail;
  EXPECT_THAT(failure.detail, HasSubstr(GetParam().detail));
  ExpectNoChildren();
}

INSTANTIATE_TEST_SUITE_P(
    planted_harness, HarnessFaultTest,
    ::testing::Values(HarnessFault{"planted_harness_crashes", "CRASHED", "in keval's own code died of SIGSEGV"},
                      HarnessFault{"planted_harness_hangs", "HUNG", "in keval's own code did not answer"},
                      HarnessFault{"planted_harness_out_of_memory", "OUT_OF_MEMORY", "in keval's own code ran out of"},
                      HarnessFault{"planted_harness_babbles", "PROTOCOL_ERROR", "something else to a block"}),
    [](const auto& info) { return std::string(info.param.variant); });

TEST(WorkerFaultTest, ALateFaultLeavesWhatWasMeasured) {
  const WorkFailure failure = RoundFailure(Arms("planted_aborts_late"));
  EXPECT_EQ(failure.reason, "CRASHED");
  EXPECT_FALSE(failure.partial.empty());
}

// Each block begins with a preparation of its own, in which base runs too: the mark still tells them apart.
TEST(WorkerFaultTest, ASequentialArmsFaultIsStillItsOwn) {
  JobArms arms = Arms("planted_aborts_late");
  arms.sequential = true;
  const WorkFailure candidate = RoundFailure(arms);
  EXPECT_EQ(candidate.cause, "candidate");
  EXPECT_EQ(candidate.reason, "CRASHED");
  EXPECT_THAT(candidate.detail, HasSubstr("candidate (planted_aborts_late) died of SIGABRT"));
  EXPECT_FALSE(candidate.partial.empty());  // Blocks had been measured, so it wasn't the first preparation.
  std::swap(arms.base_variant, arms.candidate_variant);
  const WorkFailure base = RoundFailure(arms);
  EXPECT_EQ(base.cause, "base");
  EXPECT_EQ(base.reason, "CRASHED");
  EXPECT_THAT(base.detail, HasSubstr("died of SIGABRT"));
  arms = Arms("planted_skips_late");
  arms.sequential = true;
  const WorkFailure wrong = RoundFailure(arms);
  EXPECT_EQ(wrong.cause, "candidate");
  EXPECT_TRUE(wrong.is_contract);
  arms = Arms("planted_harness_crashes");
  arms.sequential = true;
  EXPECT_EQ(RoundFailure(arms).cause, "harness");
}

TEST(WorkerFaultTest, AFallbackFailsOnlyWhereTheVariantIsForced) {
  JobArms arms = Arms("planted_falls_back");
  auto collector = PlantedWorkers();
  const auto result = collector.Round(arms, {Series(1)[0]}, 0, nullptr, Carry);
  EXPECT_TRUE(Value(result).evidence.at(0).candidate_dispatch.fallback);
  arms.force_variant = true;
  const WorkFailure failure = RoundFailure(arms);
  EXPECT_EQ(failure.reason, "FALLBACK");
  EXPECT_TRUE(failure.is_contract);
}

TEST(WorkerFaultTest, TheContractBlamesWhoseCodeCrashesIt) {
  auto collector = PlantedWorkers();
  const auto cause = [&](const JobArms& arms) {
    const WorkFailure failure = FailureOf(collector.Contract(arms, nullptr, nullptr, Carry));
    EXPECT_EQ(failure.reason, "CRASHED") << failure.detail;
    return failure.cause;
  };
  EXPECT_EQ(cause(Arms("planted_aborts")), "candidate");
  JobArms arms = Arms("portable_addmm");
  arms.base_variant = "planted_aborts";
  EXPECT_EQ(cause(arms), "base");
  EXPECT_EQ(cause(Arms("planted_harness_crashes_in_contract")), "harness");
  ExpectNoChildren();
}

// None of it says anything about what the variant computes: a loss, which a job tries again.
TEST(WorkerFaultTest, TheContractsWantOfMemoryAndLostDeviceAreNoFailedRows) {
  auto collector = PlantedWorkers();
  const auto failure = [&](const JobArms& arms) {
    WorkFailure failure = FailureOf(collector.Contract(arms, nullptr, nullptr, Carry));
    EXPECT_FALSE(failure.is_contract) << failure.detail;
    return failure.cause + " " + failure.reason;
  };
  EXPECT_EQ(failure(Arms("planted_out_of_memory")), "candidate OUT_OF_MEMORY");
  EXPECT_EQ(failure(Arms("planted_loses_device")), "device DEVICE_LOST");
  JobArms arms = Arms("portable_addmm");
  arms.base_variant = "planted_out_of_memory";
  EXPECT_EQ(failure(arms), "base OUT_OF_MEMORY");
  ExpectNoChildren();
}

TEST(WorkerFaultTest, AWorkerThatCannotBeStartedIsTheHarness) {
  auto collector = CollectorOf("/nonexistent/keval-worker");
  const WorkFailure missing = FailureOf(collector.Round(Arms(), Series(), 0, nullptr, Carry));
  EXPECT_EQ(missing.cause, "harness");
  EXPECT_EQ(missing.reason, "SPAWN_FAILED");
  auto other = CollectorOf("/bin/false");
  EXPECT_EQ(FailureOf(other.Round(Arms(), Series(), 0, nullptr, Carry)).cause, "harness");
  ExpectNoChildren();
}

TEST(WorkerFaultTest, ADeviceThatIsNotThereIsTheDevices) {
  JobArms arms = Arms();
  arms.device = "cuda:63";
  auto collector = Real();
  const WorkFailure failure = FailureOf(collector.Pilot(arms, Series(), nullptr, Carry));
  EXPECT_EQ(failure.cause, "device");
  EXPECT_EQ(failure.reason, "DEVICE_UNUSABLE");
  ExpectNoChildren();
}

// The planted variants' calls, in all worker processes that are started while it lives.
class CallLog {
 public:
  CallLog() { setenv("KEVAL_PLANTED_LOG", path_.c_str(), 1); }
  ~CallLog() { unsetenv("KEVAL_PLANTED_LOG"); }
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  // The process that made call number `calls`, from 1; 0 where a minute passes without it.
  pid_t CallerOf(int calls) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (std::chrono::steady_clock::now() < deadline) {
      const auto logged = testing::ReadLoggedCalls(path_);
      if (logged.size() >= static_cast<std::size_t>(calls)) {
        return static_cast<pid_t>(logged[static_cast<std::size_t>(calls) - 1].process);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return 0;
  }

 private:
  const testing::TempDir folder_;
  const std::string path_ = folder_.path() + "/calls";
};

TEST(WorkerFaultTest, AWorkerKilledFromOutsideIsInfrastructure) {
  const CallLog log;
  std::thread killer([&log] {
    const pid_t candidate = log.CallerOf(12);  // Beyond its preparation, in the middle of its blocks.
    if (candidate > 0) kill(candidate, SIGKILL);
  });
  auto collector = PlantedWorkers();
  const WorkFailure failure = FailureOf(collector.Round(Arms("planted_slow"), Series(20), 0, nullptr, Carry));
  killer.join();
  EXPECT_EQ(failure.cause, "infrastructure");
  EXPECT_EQ(failure.reason, "KILLED");
  ExpectNoChildren();
}

TEST(WorkerFaultTest, CheckCancelsWithinABlock) {
  auto collector = PlantedWorkers();
  const auto begin = std::chrono::steady_clock::now();
  const auto check = [begin] {
    return std::chrono::steady_clock::now() - begin < std::chrono::seconds(2) ? absl::OkStatus()
                                                                              : absl::CancelledError("enough");
  };
  const auto result = collector.Round(Arms("planted_slow"), Series(60), 0, nullptr, check);
  EXPECT_EQ(result.status(), absl::CancelledError("enough"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
  ExpectNoChildren();
}

TEST(WorkerFaultTest, NoWorkerOutlivesAKilledServer) {
  const CallLog log;
  const pid_t server = fork();
  if (server == 0) {
    auto collector = PlantedWorkers();
    static_cast<void>(collector.Round(Arms("planted_hangs"), Series(), 0, nullptr, Carry));
    _exit(0);
  }
  EXPECT_GT(log.CallerOf(1), 0);  // It is in a call that never ends.
  const std::vector<pid_t> workers = ChildrenOf(server);
  EXPECT_EQ(workers.size(), 2U);
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  const auto alive = [](pid_t pid) {
    std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
    std::string line;
    return std::getline(file, line) && !absl::StrContains(line, ") Z ");
  };
  for (int i = 0; i < 200 && std::any_of(workers.begin(), workers.end(), alive); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (const pid_t worker : workers) {
    EXPECT_FALSE(alive(worker)) << worker;
  }
}

}  // namespace
}  // namespace keval::server
