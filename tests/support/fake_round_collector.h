// A RoundCollector without workers: synthetic samples with given effects, failures where a test wants them.
#ifndef KEVAL_TESTS_SUPPORT_FAKE_ROUND_COLLECTOR_H_
#define KEVAL_TESTS_SUPPORT_FAKE_ROUND_COLLECTOR_H_

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "server/round_collector.h"

namespace keval::testing {

// What a fake does; shared by the collectors of a test's servers, so that it outlives a restart. Set it up before the
// runner starts; the counters are safe to read at any time.
struct FakeWork {
  double gain = 0;                        // L of primaries and guards.
  std::map<std::string, double> gain_of;  // By series; wins.
  double noise = 0.001;                   // Sd of ln t between calls.
  double base_ns = 1e6;
  std::map<std::string, double> pilot_ns;  // By series; base_ns otherwise.
  server::WorkerBytes worker_bytes;        // The pilot's, of each series.
  std::optional<double> free_bytes;        // The pilot's.
  std::int64_t base_peak_bytes = 100 << 20;
  std::int64_t candidate_peak_bytes = 100 << 20;
  bool candidate_falls_back = false;
  double device_seconds = 1.25;  // Of a round.
  std::map<std::string, std::string> facts = {{"cpu_model", "Test CPU"}, {"torch_version", "2.11.0"}};
  int throttle_arm_b_of = 0;  // Of this many quads, one has a throttled B block; 0: none.
  std::vector<server::ContractRowData> contract = {{"C1", "both", "plain", 1e-7, 1e-6, "pass", ""},
                                                   {"C12", "candidate", "", NAN, NAN, "not_applicable", "a CPU"}};
  // Called before each round is collected; a failure it returns is the round's.
  std::function<std::optional<server::WorkFailure>(int round, int attempt)> on_round;
  std::function<std::optional<server::WorkFailure>(int attempt)> on_pilot;
  std::function<std::optional<server::WorkFailure>(int attempt)> on_contract;
  std::function<std::optional<server::WorkFailure>(int attempt)> on_environment;
  std::function<std::optional<server::WorkFailure>()> on_diagnose;
  std::map<std::string, std::string> absent_diagnostics;  // By name: why.
  std::function<void(server::RoundData*)> spoil;          // Changes a round before it is returned.

  keval::Mutex mutex;
  std::map<std::string, int> calls ABSL_GUARDED_BY(mutex);  // By phase; rounds as "round 0".

  int Count(const std::string& phase) {
    keval::MutexLock lock(&mutex);
    return calls[phase]++;
  }
  int Calls(const std::string& phase) {
    keval::MutexLock lock(&mutex);
    return calls[phase];
  }
};

class FakeRoundCollector : public server::RoundCollector {
 public:
  explicit FakeRoundCollector(std::shared_ptr<FakeWork> work) : work_(std::move(work)) {}

  absl::StatusOr<server::Collected<server::PilotData>> Pilot(const server::JobArms&,
                                                             const std::vector<server::SeriesRun>& series,
                                                             server::DeviceLease*, const Check& check) override {
    const int attempt = work_->Count("pilot");
    if (auto status = check(); !status.ok()) return status;
    if (work_->on_pilot) {
      if (auto failure = work_->on_pilot(attempt)) return *failure;
    }
    server::PilotData data;
    data.free_bytes = work_->free_bytes;
    for (const auto& run : series) {
      data.bytes[run.series] = work_->worker_bytes;
      const auto own = work_->pilot_ns.find(run.series);
      data.base_ns[run.series] = own == work_->pilot_ns.end() ? work_->base_ns : own->second;
    }
    return data;
  }

  absl::StatusOr<server::Collected<server::RoundData>> Round(const server::JobArms& arms,
                                                             const std::vector<server::SeriesRun>& series, int round,
                                                             server::DeviceLease*, const Check& check) override {
    const int attempt = work_->Count("round " + std::to_string(round));
    if (work_->on_round) {
      if (auto failure = work_->on_round(round, attempt)) return *failure;
    }
    if (auto status = check(); !status.ok()) return status;
    server::RoundData data = Measure(arms, series, round);
    if (work_->spoil) work_->spoil(&data);
    return data;
  }

  absl::StatusOr<server::Collected<std::vector<server::ContractRowData>>> Contract(
      const server::JobArms&, const std::function<void(const server::ContractRowData&)>& row, server::DeviceLease*,
      const Check& check) override {
    const int attempt = work_->Count("contract");
    if (auto status = check(); !status.ok()) return status;
    if (work_->on_contract) {
      if (auto failure = work_->on_contract(attempt)) return *failure;
    }
    for (const auto& one : work_->contract) row(one);
    return work_->contract;
  }

  absl::StatusOr<server::Collected<server::ProfileData>> Profile(const server::JobArms&,
                                                                 const std::vector<server::SeriesRun>& series,
                                                                 server::DeviceLease*, const Check&) override {
    work_->Count("profile");
    server::ProfileData data;
    for (const auto& run : series) {
      data.by_series[run.series] = {{{{"aten::mm", 4}, {"aten::add_", 1}}, {}}, {{{"aten::addmm_", 4}}, {}}};
    }
    return data;
  }

  absl::StatusOr<server::Collected<server::DiagnosticsData>> Diagnose(const server::JobArms& arms,
                                                                      const std::vector<server::DiagnosticRun>& runs,
                                                                      server::DeviceLease*, const Check&) override {
    work_->Count("diagnose");
    if (work_->on_diagnose) {
      if (auto failure = work_->on_diagnose()) return *failure;
    }
    std::vector<server::SeriesRun> series;
    server::DiagnosticsData data;
    for (const auto& run : runs) {
      if (work_->absent_diagnostics.count(run.name) > 0) {
        data.absent[run.name] = work_->absent_diagnostics.at(run.name);
        continue;
      }
      series.push_back({.series = run.name,
                        .quads = run.quads,
                        .timed_repetitions = run.timed_repetitions,
                        .discarded_repetitions = run.discarded_repetitions});
    }
    data.samples = Measure(arms, series, 0).samples;
    return data;
  }

  absl::StatusOr<server::Collected<std::map<std::string, std::string>>> Environment(const server::JobArms&,
                                                                                    const Check&) override {
    const int attempt = work_->Count("environment");
    if (work_->on_environment) {
      if (auto failure = work_->on_environment(attempt)) return *failure;
    }
    return work_->facts;
  }

 private:
  server::RoundData Measure(const server::JobArms& arms, const std::vector<server::SeriesRun>& series, int round) {
    server::RoundData data;
    data.seconds = 1.5;
    data.device_seconds = work_->device_seconds;
    std::mt19937_64 random(arms.seed * 1000003 + static_cast<std::uint64_t>(round));
    std::normal_distribution<double> noise(0, work_->noise);
    int quads = 0;
    int turn = 0;
    for (const auto& run : series) {
      if (arms.on_turn) arms.on_turn(run.series, turn++, static_cast<int>(series.size()));
      const bool control = run.role == verdict::Role::kControl;
      const auto own = work_->gain_of.find(run.series);
      const double gain = own != work_->gain_of.end() ? own->second : control ? 0 : work_->gain;
      for (int quad = 0; quad < run.quads; ++quad, ++quads) {
        const bool throttled = work_->throttle_arm_b_of > 0 && quads % work_->throttle_arm_b_of == 0;
        const std::string order = (random() & 1U) != 0 ? "ABBA" : "BAAB";
        for (int pos = 0; pos < 4; ++pos) {
          const char arm = order[static_cast<std::size_t>(pos)];
          server::BlockRecord block{.series = run.series, .quad = quad, .pos = pos, .arm = arm};
          block.before.sm_clock_mhz = NAN;
          block.after.sm_clock_mhz = 1980;
          data.blocks.push_back(block);
          for (int rep = 0; rep < run.timed_repetitions; ++rep) {
            const double ln_t = std::log(work_->base_ns) - (arm == 'B' ? gain : 0) + noise(random);
            data.samples.push_back({.series = run.series,
                                    .role = run.role,
                                    .round = round,
                                    .quad = quad,
                                    .pos = pos,
                                    .arm = arm,
                                    .rep = rep,
                                    .ns = std::llround(std::exp(ln_t)),
                                    .throttled = throttled && arm == 'B'});
          }
        }
      }
      server::SeriesEvidence evidence{.series = run.series,
                                      .base_peak_bytes = work_->base_peak_bytes,
                                      .candidate_peak_bytes = work_->candidate_peak_bytes};
      evidence.base_dispatch = {arms.base_variant, "matmul, then add", "", false};
      evidence.candidate_dispatch = {arms.candidate_variant, "addmm_ in place", "float32 operands", false};
      evidence.candidate_dispatch.fallback = work_->candidate_falls_back;
      data.evidence.push_back(std::move(evidence));
    }
    return data;
  }

  const std::shared_ptr<FakeWork> work_;
};

}  // namespace keval::testing

#endif  // KEVAL_TESTS_SUPPORT_FAKE_ROUND_COLLECTOR_H_
