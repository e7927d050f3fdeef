// Rounds, pilots, profiles, diagnostics and the contract with real worker processes on a CPU; and what is said and left
// behind when a worker fails. Faults come from keval-worker-planted (tests/support/planted_variants.h).
#include "server/worker_round_collector.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/number.h"
#include "core/linear_logp/chunk_plan.h"
#include "server/job_evidence.h"
#include "tests/support/temp_dir.h"

namespace keval::server {
namespace {

using ::testing::HasSubstr;

absl::Status Carry() { return absl::OkStatus(); }

WorkerRoundCollector Collector(const char* program) {
  WorkerRoundCollector::Options options;
  options.worker_program = program;
  return WorkerRoundCollector(options);
}
WorkerRoundCollector Real() { return Collector(KEVAL_BIN_DIR "/keval-worker"); }
WorkerRoundCollector PlantedWorkers() { return Collector(KEVAL_PLANTED_WORKER); }

JobArms Arms(const std::string& candidate = "portable_addmm") {
  JobArms arms;
  arms.base_variant = "portable_matmul_add";
  arms.candidate_variant = candidate;
  arms.device = "cpu";
  arms.seed = 9007199254740993;
  arms.hang_timeout_seconds = 60;
  return arms;
}

WorkShape Shape() {
  WorkShape shape;
  shape.num_tokens = 64;
  shape.hidden_size = 32;
  shape.vocab_size = 300;
  shape.bias = true;
  shape.chunk_elems = std::int64_t{16} * 300;  // Four chunks.
  return shape;
}

std::vector<SeriesRun> Series(int quads = 3) {
  const SeriesRun primary = {"64x32x300/float32/bias", verdict::Role::kPrimary, Shape(), quads, 3, 1};
  SeriesRun guard = {"64x32x300/bfloat16/bias", verdict::Role::kGuard, Shape(), quads, 2, 1};
  guard.shape.dtype = DType::kBFloat16;
  const SeriesRun control = {"ctl:64x32x300/float32/bias", verdict::Role::kControl, Shape(), quads, 3, 1};
  return {primary, guard, control};
}

// Process ids of this process's children, zombies included.
std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  DIR* const directory = opendir("/proc");
  while (const dirent* entry = readdir(directory)) {
    const auto pid = ParseInt64(entry->d_name);
    if (!pid.has_value()) {
      continue;
    }
    std::ifstream file(absl::StrCat("/proc/", *pid, "/status"));
    for (std::string line; std::getline(file, line);) {
      if (line == absl::StrCat("PPid:\t", parent)) {
        children.push_back(static_cast<pid_t>(*pid));
      }
    }
  }
  closedir(directory);
  return children;
}

void ExpectNoChildren() { EXPECT_THAT(ChildrenOf(getpid()), ::testing::IsEmpty()); }

template <typename T>
const T& Value(const absl::StatusOr<Collected<T>>& result) {
  EXPECT_TRUE(result.ok()) << result.status();
  if (const auto* const failure = std::get_if<WorkFailure>(&*result)) {
    ADD_FAILURE() << failure->cause << " " << failure->reason << ": " << failure->detail;
    static const auto* const none = new T();
    return *none;
  }
  return std::get<T>(*result);
}

template <typename T>
WorkFailure FailureOf(const absl::StatusOr<Collected<T>>& result) {
  EXPECT_TRUE(result.ok()) << result.status();
  const auto* const failure = result.ok() ? std::get_if<WorkFailure>(&*result) : nullptr;
  EXPECT_NE(failure, nullptr);
  return failure == nullptr ? WorkFailure() : *failure;
}

WorkFailure RoundFailure(const JobArms& arms) {
  DeviceLease lease;
  auto collector = PlantedWorkers();
  WorkFailure failure = FailureOf(collector.Round(arms, Series(), 0, &lease, Carry));
  ExpectNoChildren();
  return failure;
}

TEST(WorkerRoundCollectorTest, ARoundIsBalancedAndItsSamplesFileReadsBack) {
  DeviceLease lease;
  auto collector = Real();
  const auto result = collector.Round(Arms(), Series(), 4, &lease, Carry);
  const auto& data = Value(result);
  ASSERT_EQ(data.samples.size(), 3U * 4 * (3 + 2 + 3));
  const auto parsed = verdict::ParseSamples(verdict::FormatSamples(data.samples));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->size(), data.samples.size());
  for (const auto& sample : data.samples) {
    EXPECT_EQ(sample.round, 4);
    EXPECT_GT(sample.ns, 0);
    EXPECT_FALSE(sample.throttled);
  }
  ASSERT_EQ(data.blocks.size(), 3U * 3 * 4);
  EXPECT_EQ(data.blocks.front().series, "64x32x300/float32/bias");
  EXPECT_GT(data.seconds, data.device_seconds);
  EXPECT_GT(data.device_seconds, 0);
  ExpectNoChildren();
}

// The arms' order is the concurrent mode's; each block's tensors are its own, and the contents the same.
TEST(WorkerRoundCollectorTest, ASequentialRoundHasTheSameOrderAndHoldsTensorsInATurnOnly) {
  auto collector = Real();
  JobArms arms = Arms();
  const auto order = [&](const JobArms& of) {
    DeviceLease lease;
    const auto result = collector.Round(of, Series(), 4, &lease, Carry);
    const auto& data = Value(result);
    EXPECT_EQ(data.samples.size(), 3U * 4 * (3 + 2 + 3));
    EXPECT_EQ(data.evidence.size(), 3U);
    std::string text;
    for (const BlockRecord& block : data.blocks) {
      text.push_back(block.arm);
    }
    return text;
  };
  const std::string concurrent = order(arms);
  arms.sequential = true;
  EXPECT_EQ(order(arms), concurrent);
  ExpectNoChildren();
}

// A block after a release, that is: without tensors it would be refused.
TEST(WorkerFaultTest, ASequentialArmsFaultIsStillItsOwn) {
  JobArms arms = Arms("planted_skips_late");
  arms.sequential = true;
  const WorkFailure failure = RoundFailure(arms);
  EXPECT_EQ(failure.cause, "candidate");
  EXPECT_TRUE(failure.is_contract);
}

TEST(WorkerRoundCollectorTest, EvidenceNamesPathsAndPeaks) {
  DeviceLease lease;
  auto collector = Real();
  const auto result = collector.Round(Arms(), Series(1), 0, &lease, Carry);
  const auto& data = Value(result);
  ASSERT_EQ(data.evidence.size(), 3U);
  const SeriesEvidence& primary = data.evidence[0];
  EXPECT_EQ(primary.base_dispatch.variant, "portable_matmul_add");
  EXPECT_EQ(primary.candidate_dispatch.variant, "portable_addmm");
  EXPECT_THAT(primary.candidate_dispatch.path, HasSubstr("addmm_"));
  EXPECT_FALSE(primary.candidate_dispatch.fallback);
  // Base holds table and product at once, [V, D] of float32 each.
  EXPECT_GE(primary.base_peak_bytes, 2 * 300 * 32 * 4);
  EXPECT_LT(primary.candidate_peak_bytes, primary.base_peak_bytes);
  const SeriesEvidence& control = data.evidence[2];
  EXPECT_EQ(control.candidate_dispatch.variant, "portable_matmul_add");
  EXPECT_EQ(control.base_peak_bytes, control.candidate_peak_bytes);
}

// Otherwise base's own process, which runs every series, and its copy, which runs the control, find the allocator in
// different states: 7 % between two processes of the same variant.
TEST(WorkerRoundCollectorTest, OnACpuEveryProcessHasRunEverySeries) {
  const testing::TempDir folder;
  const std::string log = folder.path() + "/log";
  setenv("KEVAL_PLANTED_LOG", log.c_str(), 1);
  JobArms arms = Arms("planted_logs");
  arms.base_variant = "planted_logs";
  std::vector<SeriesRun> series = Series();
  series[1].shape.num_tokens = 65;
  DeviceLease lease;
  WorkerRoundCollector collector = PlantedWorkers();
  Value(collector.Round(arms, series, 0, &lease, Carry));
  unsetenv("KEVAL_PLANTED_LOG");
  std::map<std::string, std::set<std::string>> shapes_by_process;
  std::ifstream file(log);
  for (std::string process, tokens; file >> process >> tokens;) shapes_by_process[process].insert(tokens);
  EXPECT_EQ(shapes_by_process.size(), 3);
  for (const auto& [process, shapes] : shapes_by_process) EXPECT_THAT(shapes, ::testing::ElementsAre("64", "65"));
}

TEST(WorkerRoundCollectorTest, QuadOrderComesFromSeedAndRoundAlone) {
  const auto order = [](int round) {
    auto collector = Real();
    const auto result = collector.Round(Arms(), {Series(12)[0]}, round, nullptr, Carry);
    std::string arms;
    for (const BlockRecord& block : Value(result).blocks) {
      arms.push_back(block.arm);
    }
    return arms;
  };
  const std::string first = order(0);
  EXPECT_EQ(first, order(0));
  EXPECT_NE(first, order(1));
  for (std::size_t at = 0; at < first.size(); at += 4) {
    const std::string quad = first.substr(at, 4);
    EXPECT_TRUE(quad == "ABBA" || quad == "BAAB") << quad;
  }
  EXPECT_THAT(first, HasSubstr("ABBA"));
  EXPECT_THAT(first, HasSubstr("BAAB"));
}

TEST(WorkerRoundCollectorTest, ThePilotTimesBaseForEverySeries) {
  DeviceLease lease;
  auto collector = Real();
  const auto result = collector.Pilot(Arms(), Series(), &lease, Carry);
  const auto& pilot = Value(result);
  ASSERT_EQ(pilot.base_ns.size(), 3U);
  for (const auto& [series, ns] : pilot.base_ns) {
    EXPECT_GT(ns, 1000) << series;
    EXPECT_LT(ns, 1e9) << series;
  }
  EXPECT_GT(pilot.bytes.context, 1 << 20);
  EXPECT_GE(pilot.bytes.inputs, 300 * 32 * 4);
  EXPECT_GE(pilot.bytes.peak, 2 * 300 * 32 * 4);
  ExpectNoChildren();
}

TEST(WorkerRoundCollectorTest, TheProfileCountsWhatTheArmsDifferIn) {
  DeviceLease lease;
  auto collector = Real();
  const auto result = collector.Profile(Arms(), Series(), &lease, Carry);
  const auto& profile = Value(result);
  ASSERT_EQ(profile.by_series.size(), 2U);  // The control has nothing new to say.
  const auto& [base, candidate] = profile.by_series.at("64x32x300/float32/bias");
  EXPECT_EQ(base.ops.at("aten::add_"), 4);
  EXPECT_EQ(candidate.ops.at("aten::addmm_"), 4);
  EXPECT_EQ(candidate.ops.count("aten::add_"), 0U);
  EXPECT_THAT(base.kernels, ::testing::IsEmpty());
  EXPECT_THAT(base.kernels_note, HasSubstr("CPU"));
  EXPECT_THAT(candidate.dram.note, HasSubstr("CPU"));
  ExpectNoChildren();
}

TEST(WorkerRoundCollectorTest, DiagnosticsCoverEveryRegion) {
  DeviceLease lease;
  auto collector = Real();
  const std::vector<DiagnosticRun> runs = {
      {"all", Shape(), DiagnosticRegion::kForwardBackward, 2, 2, 1},
      {"backward", Shape(), DiagnosticRegion::kBackward, 2, 2, 1},
      {"dw", Shape(), DiagnosticRegion::kWeightGradient, 2, 2, 1},
  };
  const auto result = collector.Diagnose(Arms(), runs, &lease, Carry);
  const auto& data = Value(result);
  EXPECT_THAT(data.absent, ::testing::IsEmpty());
  std::map<std::string, int> rows;
  for (const auto& sample : data.samples) {
    ++rows[sample.series];
  }
  EXPECT_EQ(rows, (std::map<std::string, int>{{"all", 16}, {"backward", 16}, {"dw", 16}}));
  ExpectNoChildren();
}

// The static model at a shape forced into K chunks: base adds K times into the table, the candidate never.
TEST(WorkerRoundCollectorTest, ForcedChunksCostBaseThatManyAdditions) {
  for (const std::int64_t chunks : {1, 2, 4, 8}) {
    SeriesRun run = Series()[0];
    run.shape.chunk_elems = run.shape.num_tokens / chunks * run.shape.vocab_size;
    const auto plan = linear_logp::MakeChunkPlan(run.shape.num_tokens, run.shape.hidden_size, run.shape.vocab_size,
                                                 run.shape.chunk_elems);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->chunks, chunks);
    auto collector = Real();
    const auto result = collector.Profile(Arms(), {run}, nullptr, Carry);
    const Json profile = ProfileJson(Value(result));
    const Json& difference = profile.at(run.series).at("ops").at("difference");
    EXPECT_EQ(difference.at("aten::add_"), -plan->add_ops_saved) << chunks;
    EXPECT_EQ(difference.at("aten::addmm_"), chunks);
    EXPECT_EQ(difference.at("aten::mm"), -chunks);
  }
}

TEST(WorkerRoundCollectorTest, ADiagnosticThatFailsIsAbsentAndTheOthersGoOn) {
  const std::vector<DiagnosticRun> runs = {
      {"dw", Shape(), DiagnosticRegion::kWeightGradient, 2, 2, 1},
      {"all", Shape(), DiagnosticRegion::kForwardBackward, 2, 2, 1},
  };
  auto collector = Real();
  const auto result = collector.Diagnose(Arms("materialized"), runs, nullptr, Carry);
  const auto& data = Value(result);
  ASSERT_EQ(data.absent.size(), 1U);
  EXPECT_THAT(data.absent.at("dw"), HasSubstr("candidate, UNSUPPORTED"));
  ASSERT_EQ(data.samples.size(), 16U);
  EXPECT_EQ(data.samples[0].series, "all");
  ExpectNoChildren();
}

TEST(WorkerRoundCollectorTest, DiagnosticsGiveUpAfterThreeFailures) {
  std::vector<DiagnosticRun> runs(5, {"", Shape(), DiagnosticRegion::kForwardBackward, 1, 1, 1});
  for (int i = 0; i < 5; ++i) runs[static_cast<std::size_t>(i)].name = absl::StrCat("run ", i);
  auto collector = PlantedWorkers();
  const auto result = collector.Diagnose(Arms("planted_aborts"), runs, nullptr, Carry);
  const auto& data = Value(result);
  EXPECT_THAT(data.samples, ::testing::IsEmpty());
  ASSERT_EQ(data.absent.size(), 5U);
  EXPECT_THAT(data.absent.at("run 2"), HasSubstr("CRASHED"));
  EXPECT_THAT(data.absent.at("run 3"), HasSubstr("not tried"));
  ExpectNoChildren();
}

TEST(WorkerRoundCollectorTest, TheEnvironmentIsTheWorkers) {
  setenv("MALLOC_ARENA_MAX", "1", 1);
  setenv("OMP_NUM_THREADS", "7", 1);
  JobArms arms = Arms();
  arms.worker_threads = 2;
  auto collector = Real();
  const auto result = collector.Environment(arms, Carry);
  EXPECT_EQ(Value(result).at("worker_threads"), "2");
  EXPECT_EQ(Value(result).at("device"), "cpu");
  unsetenv("MALLOC_ARENA_MAX");
  unsetenv("OMP_NUM_THREADS");
  ExpectNoChildren();
}

TEST(WorkerRoundCollectorTest, TheContractStreamsItsRows) {
  DeviceLease lease;
  std::vector<std::string> streamed;
  auto collector = Real();
  const auto result = collector.Contract(
      Arms(), [&](const ContractRowData& row) { streamed.push_back(row.id); }, &lease, Carry);
  const auto& rows = Value(result);
  EXPECT_GT(rows.size(), 10U);
  ASSERT_EQ(streamed.size(), rows.size());
  for (const ContractRowData& row : rows) {
    EXPECT_NE(row.status, "fail") << row.id << " " << row.arm << " " << row.case_name << ": " << row.why;
  }
  ExpectNoChildren();
}

TEST(WorkerProgramTest, SaysThatItHasNoUseByHand) {
  const int status = std::system(KEVAL_BIN_DIR "/keval-worker 2>/dev/null </dev/null");  // NOLINT(cert-env33-c)
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 2);
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

TEST(WorkerFaultTest, TheContractBlamesTheArmThatCrashesIt) {
  auto collector = PlantedWorkers();
  EXPECT_EQ(FailureOf(collector.Contract(Arms("planted_aborts"), nullptr, nullptr, Carry)).cause, "candidate");
  JobArms arms = Arms("portable_addmm");
  arms.base_variant = "planted_aborts";
  EXPECT_EQ(FailureOf(collector.Contract(arms, nullptr, nullptr, Carry)).cause, "base");
  ExpectNoChildren();
}

TEST(WorkerFaultTest, AWorkerThatCannotBeStartedIsTheHarness) {
  auto collector = Collector("/nonexistent/keval-worker");
  const WorkFailure missing = FailureOf(collector.Round(Arms(), Series(), 0, nullptr, Carry));
  EXPECT_EQ(missing.cause, "harness");
  EXPECT_EQ(missing.reason, "SPAWN_FAILED");
  auto other = Collector("/bin/false");
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

TEST(WorkerFaultTest, AWorkerKilledFromOutsideIsInfrastructure) {
  std::thread killer([] {
    for (int i = 0; i < 200; ++i) {
      const auto children = ChildrenOf(getpid());
      if (children.size() == 3) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // In the middle of its blocks.
        kill(children[1], SIGKILL);
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
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
  const pid_t server = fork();
  if (server == 0) {
    auto collector = PlantedWorkers();
    static_cast<void>(collector.Round(Arms("planted_hangs"), Series(), 0, nullptr, Carry));
    _exit(0);
  }
  std::vector<pid_t> workers;
  for (int i = 0; i < 500 && workers.size() < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    workers = ChildrenOf(server);
  }
  ASSERT_EQ(workers.size(), 3U);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // One of them is in a call that never ends.
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
