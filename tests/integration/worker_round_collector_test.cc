// Rounds, pilots, profiles, diagnostics and the contract with real worker processes on a CPU.
#include "server/worker_round_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/linear_logp/chunk_plan.h"
#include "server/job_evidence.h"
#include "server/job_plan.h"
#include "tests/integration/worker_rounds.h"
#include "tests/support/temp_dir.h"

namespace keval::server {
namespace {

using testing::Arms;
using testing::Carry;
using testing::ChildrenOf;
using testing::ExpectNoChildren;
using ::testing::HasSubstr;
using testing::LoggedCall;
using testing::PlantedWorkers;
using testing::Real;
using testing::Series;
using testing::Shape;
using testing::Value;

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

// The arms' order is the concurrent mode's, and so is what is measured.
TEST(WorkerRoundCollectorTest, ASequentialRoundHasTheSameOrder) {
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

std::vector<LoggedCall> LoggedCallsOfRound(const JobArms& arms, const std::vector<SeriesRun>& series, int round) {
  const testing::TempDir folder;
  const std::string log = folder.path() + "/log";
  setenv("KEVAL_PLANTED_LOG", log.c_str(), 1);
  DeviceLease lease;
  WorkerRoundCollector collector = PlantedWorkers();
  Value(collector.Round(arms, series, round, &lease, Carry));
  unsetenv("KEVAL_PLANTED_LOG");
  return testing::ReadLoggedCalls(log);
}

// Calls by num_tokens of the series, then by process; `first`: who made the first.
using Calls = std::map<std::int64_t, std::map<std::int64_t, int>>;
Calls CallsOfRound(const JobArms& arms, const std::vector<SeriesRun>& series, int round, std::int64_t* first) {
  Calls calls;
  *first = 0;
  for (const LoggedCall& call : LoggedCallsOfRound(arms, series, round)) {
    if (*first == 0) *first = call.process;
    ++calls[call.num_tokens][call.process];
  }
  return calls;
}

// Side by side both arms hold their inputs; one after the other, whoever computes is alone with its own.
TEST(WorkerRoundCollectorTest, ASequentialRoundHoldsTensorsInATurnOnly) {
  constexpr std::int64_t kWeightBytes = 40 << 20;  // Above what glibc ever keeps of a freed block.
  JobArms arms = Arms("planted_logs");
  SeriesRun run = Series(1)[0];
  run.shape.num_tokens = 4;
  run.shape.hidden_size = 2560;
  run.shape.vocab_size = kWeightBytes / 4 / run.shape.hidden_size;
  run.shape.chunk_elems = 0;
  run.timed_repetitions = 1;
  const auto most = [&] {
    std::int64_t bytes = 0;
    const auto calls = LoggedCallsOfRound(arms, {run}, 0);
    EXPECT_FALSE(calls.empty());
    for (const LoggedCall& call : calls) bytes = std::max(bytes, call.siblings_bytes);
    return bytes;
  };
  const std::int64_t concurrent = most();
  EXPECT_GT(concurrent, kWeightBytes);
  arms.sequential = true;
  EXPECT_LT(most(), concurrent - kWeightBytes / 2);
  ExpectNoChildren();
}

// What a process has run decides its heap's later page faults: between base's own process, which had run every series,
// and a copy of it, which ran the control alone, there were 7 %. Nor may either of a pair make more calls than the
// other.
TEST(WorkerRoundCollectorTest, OnACpuTheControlHasAFreshPairAndBothOfAPairMakeAsManyCalls) {
  constexpr std::int64_t kSlyVocabSize = 331;  // planted_variants.h, whose headers are torch's.
  JobArms arms = Arms("planted_sly_logs");
  arms.base_variant = "planted_logs";
  std::vector<SeriesRun> series = Series();
  for (std::size_t i = 0; i < series.size(); ++i) {
    series[i].shape.num_tokens = static_cast<std::int64_t>(64 + i);
    series[i].shape.vocab_size = kSlyVocabSize;
  }
  std::int64_t first = 0;
  const Calls calls = CallsOfRound(arms, series, 0, &first);
  ASSERT_EQ(calls.size(), 3U);
  std::vector<std::set<std::int64_t>> processes;
  for (const SeriesRun& run : series) {
    std::vector<int> counts;
    processes.emplace_back();
    for (const auto& [process, count] : calls.at(run.shape.num_tokens)) {
      counts.push_back(count);
      processes.back().insert(process);
    }
    ASSERT_EQ(counts.size(), 2U) << run.series;
    EXPECT_EQ(counts[0], counts[1]) << run.series;
    const int in_blocks = 2 * run.quads * (run.discarded_repetitions + run.timed_repetitions);
    EXPECT_GE(counts[0], in_blocks + 4) << run.series;  // Base and the arm itself, on both sets of values.
  }
  EXPECT_EQ(processes[0], processes[1]);
  for (const std::int64_t process : processes[2]) EXPECT_EQ(processes[0].count(process), 0U);
}

TEST(WorkerRoundCollectorTest, InputsAreFreshInEachRoundAndTheSameForBothArms) {
  JobArms arms = Arms("planted_foreign_logs");
  arms.base_variant = "planted_logs";
  std::set<std::uint64_t> of_all_rounds;
  for (int round = 0; round < 3; ++round) {
    std::map<std::int64_t, std::set<std::uint64_t>> weights;
    for (const LoggedCall& call : LoggedCallsOfRound(arms, {Series(1)[0]}, round)) {
      weights[call.process].insert(call.weight);
    }
    ASSERT_EQ(weights.size(), 2U);
    EXPECT_EQ(weights.begin()->second, weights.rbegin()->second);
    EXPECT_EQ(weights.begin()->second.size(), 1U);  // The sets of values that take turns differ elsewhere.
    of_all_rounds.insert(weights.begin()->second.begin(), weights.begin()->second.end());
  }
  EXPECT_EQ(of_all_rounds.size(), 3U);
}

TEST(WorkerRoundCollectorTest, WhichArmIsPreparedFirstIsDrawn) {
  JobArms arms = Arms();
  arms.base_variant = "planted_logs";  // Which the candidate's process calls too, but not in blocks.
  std::set<bool> base_was_first;
  for (int round = 0; round < 16 && base_was_first.size() < 2; ++round) {
    std::int64_t first = 0;
    const Calls calls = CallsOfRound(arms, {Series(1)[0]}, round, &first);
    ASSERT_EQ(calls.size(), 1U);
    const std::map<std::int64_t, int>& by_process = calls.begin()->second;
    ASSERT_EQ(by_process.size(), 2U);
    int most = 0;
    for (const auto& [process, count] : by_process) most = std::max(most, count);
    base_was_first.insert(by_process.at(first) == most);
  }
  EXPECT_EQ(base_was_first.size(), 2U);
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
  ASSERT_EQ(pilot.bytes.size(), 3U);
  const WorkerBytes& bytes = pilot.bytes.at("64x32x300/float32/bias");
  EXPECT_GT(bytes.context, 1 << 20);
  EXPECT_GE(bytes.inputs, 300 * 32 * 4);
  EXPECT_GE(bytes.peak, 2 * 300 * 32 * 4);
  EXPECT_LT(pilot.bytes.at("64x32x300/bfloat16/bias").inputs, bytes.inputs);
  ASSERT_TRUE(pilot.free_bytes.has_value());
  EXPECT_GT(*pilot.free_bytes, bytes.context);  // Of this machine, or its control group.
  for (const auto& [series, turn] : pilot.turns) {
    EXPECT_GT(turn.repetition, pilot.base_ns.at(series) * 1e-9) << series;  // All of it is more than what is timed.
    EXPECT_GT(turn.preparation, turn.repetition) << series;
  }
  EXPECT_EQ(pilot.turns.size(), 3U);
  ASSERT_EQ(pilot.candidate_turns.size(), 2U);  // Of the control there is none.
  for (const auto& [series, turn] : pilot.candidate_turns) {
    EXPECT_GT(turn.repetition, 1e-6) << series;
    EXPECT_GT(turn.preparation, turn.repetition) << series;
  }
  ExpectNoChildren();
}

// A candidate that takes 30 ms longer than base takes them in half of the blocks.
TEST(WorkerRoundCollectorTest, ThePilotTimesTheCandidatesTurnsToo) {
  auto collector = PlantedWorkers();
  const auto result = collector.Pilot(Arms("planted_slow"), {Series()[0]}, nullptr, Carry);
  const auto& pilot = Value(result);
  ASSERT_EQ(pilot.candidate_turns.size(), 1U);
  EXPECT_GT(pilot.candidate_turns.begin()->second.repetition, 0.030);
  ExpectNoChildren();
}

// Processes of a GPU take seconds to start, which is no device time: gradients go on meanwhile.
TEST(WorkerRoundCollectorTest, NoLeaseIsHeldWhileThePilotStarts) {
  DeviceLease lease;
  std::atomic<bool> acquired{false};
  // Its worker never answers to its start; were the lease held then, nobody would get it, and the pilot would time out.
  WorkerRoundCollector::Options options;
  options.worker_program = "/bin/sleep";
  options.start_timeout_seconds = 30;
  std::thread gradient([&] {
    while (ChildrenOf(getpid()).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto grant = lease.Acquire([&] {
      return std::chrono::steady_clock::now() < deadline ? absl::OkStatus() : absl::DeadlineExceededError("held");
    });
    acquired = grant.ok();
  });
  const auto result = WorkerRoundCollector(options).Pilot(
      Arms(), Series(), &lease, [&] { return acquired ? absl::CancelledError("acquired") : absl::OkStatus(); });
  gradient.join();
  EXPECT_EQ(result.status(), absl::CancelledError("acquired"));
  ExpectNoChildren();
}

// The candidate needs more than base there: a base that is slim doesn't tell.
TEST(WorkerRoundCollectorTest, ThePilotTakesTheLargerOfBothArmsMemory) {
  const auto peak_of = [](const char* base, const char* candidate) {
    JobArms arms = Arms(candidate);
    arms.base_variant = base;
    auto collector = Real();
    const auto result = collector.Pilot(arms, Series(), nullptr, Carry);
    return Value(result).bytes.at("64x32x300/float32/bias").peak;
  };
  const double slim = peak_of("portable_addmm", "portable_addmm");
  const double large = peak_of("portable_matmul_add", "portable_matmul_add");
  EXPECT_GT(large, slim);
  EXPECT_EQ(peak_of("portable_addmm", "portable_matmul_add"), large);
  EXPECT_EQ(peak_of("portable_matmul_add", "portable_addmm"), large);
  ExpectNoChildren();
}

// With preparation, verification and the sequential mode's repeated preparations. What a busy machine adds to one of
// two pilots or rounds is left out.
TEST(WorkerRoundCollectorTest, ThePlansDeviceSecondsAreTheRoundsOwn) {
  DeviceLease lease;
  JobArms arms = Arms();
  auto collector = Real();
  for (const bool sequential : {false, true}) {
    arms.sequential = sequential;
    std::vector<double> predicted;
    std::vector<double> measured;
    for (int repeat = 0; repeat < 2; ++repeat) {
      const auto pilot = collector.Pilot(arms, Series(), &lease, Carry);
      predicted.push_back(0);
      for (const SeriesRun& run : Series()) {
        v1::JobPlan::SeriesPlan plan;
        plan.set_quads(run.quads);
        plan.set_timed_repetitions(run.timed_repetitions);
        plan.set_discarded_repetitions(run.discarded_repetitions);
        const TurnSeconds& base = Value(pilot).turns.at(run.series);
        const auto& others = Value(pilot).candidate_turns;
        const auto other = others.find(run.series);
        predicted.back() += SeriesDeviceSeconds(plan, base, other == others.end() ? base : other->second, sequential);
      }
      const auto round = collector.Round(arms, Series(), repeat, &lease, Carry);
      measured.push_back(Value(round).device_seconds);
    }
    const auto [least_predicted, most_predicted] = std::minmax_element(predicted.begin(), predicted.end());
    const auto [least_measured, most_measured] = std::minmax_element(measured.begin(), measured.end());
    EXPECT_LT(*least_predicted, 4 * *most_measured) << sequential;
    EXPECT_GT(*most_predicted, *least_measured / 4) << sequential;
  }
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

}  // namespace
}  // namespace keval::server
