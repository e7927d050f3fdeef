#include "server/job_execution.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <map>
#include <thread>
#include <utility>
#include <variant>

#include <spdlog/spdlog.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/number.h"
#include "base/text.h"
#include "core/verdict/measured_series.h"
#include "server/job_calibration.h"
#include "server/job_environment.h"
#include "server/job_events.h"
#include "server/job_loss.h"
#include "server/job_memory.h"
#include "server/job_plan.h"
#include "server/job_spec.h"

namespace keval::server {
namespace {

constexpr std::size_t kMaxLosses = 3;  // A job may lose so many; the next one ends it.
constexpr int kMaxIdleRestarts = 3;
constexpr double kBudgetSlack = 1.25;  // Times max_device_seconds: a prediction from a pilot is off by less.
constexpr std::chrono::milliseconds kStoreRetryDelay{500};
constexpr std::chrono::milliseconds kCheckInterval{20};
constexpr std::chrono::seconds kMemoryRetryDelay{2};  // In which others may give back what they hold of a device.

std::int64_t NowMs() { return absl::ToUnixMillis(absl::Now()); }

void AddJobEvent(JobChange* change) { *change->events.emplace_back().mutable_job() = change->job; }

}  // namespace

JobExecution::JobExecution(Surroundings surroundings, StoredJob job)
    : at_(std::move(surroundings)),
      job_(std::move(job.job)),
      idle_restarts_(job.idle_restarts),
      stopped_clean_(job.stopped_clean),
      arms_(ToJobArms(job_.spec())) {
  arms_.on_turn = [this](const std::string& name, int number, int count) {
    progress_.set_series(name);
    progress_.set_series_number(number + 1);
    progress_.set_series_count(count);
    if (at_.progress) at_.progress(progress_);
  };
}

void JobExecution::TellProgress(absl::string_view phase, int round) {
  progress_.Clear();
  progress_.set_phase(std::string(phase));
  progress_.set_round(round);
  if (at_.progress) at_.progress(progress_);
}

absl::Status JobExecution::Run(bool resumed) {
  using Phase = absl::Status (JobExecution::*)();
  if (auto status = Load(); !status.ok()) return status;
  if (auto status = Begin(resumed); !status.ok() || ended_) return status;
  const Phase phases[] = {&JobExecution::RecordEnvironment, &JobExecution::CheckContract, &JobExecution::MakePlan,
                          &JobExecution::CollectRounds,     &JobExecution::Profile,       &JobExecution::Diagnose,
                          &JobExecution::FinishWithOutcome};
  for (const Phase phase : phases) {
    if (auto status = (this->*phase)(); !status.ok() || ended_) return status;
  }
  return absl::OkStatus();
}

absl::Status JobExecution::Load() {
  auto losses = at_.store->Losses(job_.name());
  if (!losses.ok()) return losses.status();
  losses_ = *std::move(losses);
  auto rounds = at_.store->Rounds(job_.name());
  if (!rounds.ok()) return rounds.status();
  for (const StoredRound& round : *rounds) {
    auto samples = verdict::ParseSamples(round.samples);
    if (!samples.ok()) return samples.status();
    samples_.insert(samples_.end(), samples->begin(), samples->end());
    auto evidence = DecodeEvidence(round.evidence);
    if (!evidence.ok()) return evidence.status();
    evidence_.push_back(*std::move(evidence));
  }
  // The process before this one may have ended between the look and what follows it.
  return rounds->empty() ? absl::OkStatus() : Judge(nullptr);
}

absl::Status JobExecution::Begin(bool resumed) {
  JobChange change = NewChange();
  change.stopped_clean = false;
  if (!resumed) {
    change.job.set_state(v1::BenchmarkJob::RUNNING);
    change.job.set_start_time_unix_ms(NowMs());
    AddJobEvent(&change);
    return Commit(std::move(change));
  }
  if (!stopped_clean_ && idle_restarts_ >= kMaxIdleRestarts) {
    return Finish({.verdict = "FAILED",
                   .reason = "RESTARTS",
                   .detail = absl::StrCat("the server was restarted ", kMaxIdleRestarts,
                                          " times in succession without finishing a round; look into its log, then "
                                          "submit the job again"),
                   .failure_cause = "infrastructure"},
                  std::move(change));
  }
  if (!stopped_clean_) change.idle_restarts = idle_restarts_ + 1;
  change.job.set_restarts(change.job.restarts() + 1);
  AddJobEvent(&change);
  return Commit(std::move(change));
}

absl::Status JobExecution::RecordEnvironment() {
  TellProgress("environment", 0);
  while (!ended_) {
    auto collected = at_.collector->Environment(arms_, at_.check);
    if (!collected.ok()) return collected.status();
    if (const auto* failure = std::get_if<WorkFailure>(&*collected)) {
      if (auto status = Lose("environment", -1, *failure); !status.ok()) return status;
      continue;
    }
    auto before = at_.store->Document(job_.name(), "environment");
    if (!before.ok()) return before.status();
    auto contract = at_.store->Document(job_.name(), "contract");
    if (!contract.ok()) return contract.status();
    auto facts = std::get<0>(*std::move(collected));
    if (!at_.clock_lock.empty()) facts["gpu_clock_lock"] = PrintableText(at_.clock_lock);
    const std::string now = JsonText(EnvironmentJson(facts, at_.build));
    if (*before == now) return absl::OkStatus();
    JobChange change = NewChange();
    const bool measured = !contract->empty();  // The first thing that is.
    change.documents.emplace_back(measured ? "environment_after_restart" : "environment", now);
    const std::string changed = measured ? ChangedFacts(*before, now) : "";
    // What is decided was measured before; a profile from elsewhere decides nothing, and the report says so.
    if (changed.empty() || outcome_.has_value()) return Commit(std::move(change));
    return Finish({.verdict = "FAILED",
                   .reason = "ENVIRONMENT_CHANGED",
                   .detail = absl::StrCat("the server came back with another ", changed,
                                          "; times from before and after can't be compared: submit the job again"),
                   .failure_cause = "infrastructure"},
                  std::move(change));
  }
  return absl::OkStatus();
}

absl::Status JobExecution::CheckContract() {
  if (job_.spec().has_calibration()) return absl::OkStatus();  // Base against itself; it is no candidate that is asked.
  auto done = at_.store->Document(job_.name(), "contract");
  if (!done.ok()) return done.status();
  while (done->empty() && !ended_) {
    TellProgress("contract", 0);
    auto collected = at_.collector->Contract(
        arms_, [](const ContractRowData&) {}, at_.lease, at_.check);
    if (!collected.ok()) return collected.status();
    if (const auto* failure = std::get_if<WorkFailure>(&*collected)) {
      if (auto status = Lose("contract", -1, *failure); !status.ok()) return status;
      continue;
    }
    const auto& rows = std::get<std::vector<ContractRowData>>(*collected);
    JobChange change = NewChange();
    change.documents.emplace_back("contract", JsonText(ContractJson(rows)));
    const auto failed =
        std::find_if(rows.begin(), rows.end(), [](const ContractRowData& row) { return row.status == "fail"; });
    if (failed == rows.end()) return Commit(std::move(change));
    return Finish(
        {.verdict = "CONTRACT_FAILED",
         .reason = IsArm(failed->arm) ? absl::StrCat(absl::AsciiStrToUpper(failed->arm), "_", failed->id) : failed->id,
         .detail = ContractRowText(*failed),
         .failure_cause = IsArm(failed->arm) ? failed->arm : ""},
        std::move(change));
  }
  return absl::OkStatus();
}

absl::Status JobExecution::MakePlan() {
  if (job_.has_plan()) return absl::OkStatus();
  const std::vector<SeriesRun> runs = PlannedRuns(server::MakePlan(job_.spec(), {}, {}));
  while (!ended_) {
    TellProgress("pilot", 0);
    auto collected = at_.collector->Pilot(arms_, runs, at_.lease, at_.check);
    if (!collected.ok()) return collected.status();
    if (const auto* failure = std::get_if<WorkFailure>(&*collected)) {
      if (auto status = Lose("pilot", -1, *failure); !status.ok()) return status;
      continue;
    }
    const auto& pilot = std::get<PilotData>(*collected);
    const auto unpiloted = std::find_if(runs.begin(), runs.end(), [&](const SeriesRun& run) {
      const auto found = pilot.base_ns.find(run.series);
      return found == pilot.base_ns.end() || !(found->second > 0);
    });
    if (unpiloted != runs.end()) {
      const WorkFailure failure{.cause = "harness",
                                .reason = "BAD_PILOT",
                                .detail = absl::StrCat("the pilot gave no time for ", unpiloted->series)};
      if (auto status = Lose("pilot", -1, failure); !status.ok()) return status;
      continue;
    }
    const auto noise = FindNoise(job_.spec(), at_.device, at_.store);
    if (!noise.ok()) return noise.status();
    JobChange change = NewChange();
    *change.job.mutable_plan() = server::MakePlan(job_.spec(), pilot, *noise);
    if (auto budget = CheckBudget(job_.spec(), change.job.plan()); !budget.ok()) {
      return Finish({.verdict = "FAILED",
                     .reason = "BUDGET_EXCEEDED",
                     .detail = absl::StrCat(std::string(budget.message()),
                                            "; raise max_device_seconds, or take fewer or smaller shapes"),
                     .failure_cause = "infrastructure"},
                    std::move(change));
    }
    const auto mode = job_.spec().procedure().process_mode();
    const bool cpu = at_.device.name() == "cpu";
    const WorkerBytes largest = LargestWorker(pilot.bytes, cpu, mode);
    change.job.mutable_plan()->set_predicted_memory_bytes(std::llround(RoundBytes(largest, cpu, mode)));
    const auto fit = [&](std::optional<double> free_bytes) {
      return CheckRoundFits("primaries, guards, controls", largest, at_.device, free_bytes, mode);
    };
    if (auto fits = fit(pilot.free_bytes); !fits.ok()) {
      const std::string detail = absl::StrCat("as measured in the pilot, ", std::string(fits.message()));
      // Others may give back what they hold: one reading ends nothing where the device has enough.
      if (fit(std::nullopt).ok() && losses_.size() < kMaxLosses) {
        const WorkFailure failure{.cause = "infrastructure", .reason = "MEMORY_EXCEEDED", .detail = detail};
        if (auto status = Lose("pilot", -1, failure); !status.ok()) return status;
        if (auto stop = Pause(kMemoryRetryDelay); !stop.ok()) return stop;
        continue;
      }
      return Finish(
          {.verdict = "FAILED", .reason = "MEMORY_EXCEEDED", .detail = detail, .failure_cause = "infrastructure"},
          std::move(change));
    }
    AddJobEvent(&change);
    return Commit(std::move(change));
  }
  return absl::OkStatus();
}

absl::Status JobExecution::CollectRounds() {
  while (!outcome_.has_value() && !ended_) {
    double used_seconds = 0;
    for (const RoundEvidence& round : evidence_) used_seconds += round.device_seconds;
    if (used_seconds > kBudgetSlack * job_.spec().max_device_seconds()) return FinishOverBudget(used_seconds);
    if (auto status = CollectRound(job_.rounds_done()); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status JobExecution::CollectRound(int round) {
  TellProgress("round", round + 1);
  auto collected = at_.collector->Round(arms_, PlannedRuns(job_.plan()), round, at_.lease, at_.check);
  if (!collected.ok()) return collected.status();
  if (const auto* failure = std::get_if<WorkFailure>(&*collected)) return Lose("round", round, *failure);
  const auto& data = std::get<RoundData>(*collected);
  if (std::string fallback = ForbiddenFallback(data); !fallback.empty()) {
    return Lose("round", round,
                {.cause = std::move(fallback),
                 .reason = "FALLBACK",
                 .detail = "an arm fell back to another path although the spec forces its variant",
                 .is_contract = true,
                 .partial = data.samples});
  }
  if (std::string problem = ProblemWith(round, data); !problem.empty()) {
    return Lose("round", round,
                {.cause = "harness", .reason = "BAD_SAMPLES", .detail = std::move(problem), .partial = data.samples});
  }
  return CommitRound(round, data);
}

std::string JobExecution::ForbiddenFallback(const RoundData& data) const {
  if (!arms_.force_variant) return "";
  for (const SeriesEvidence& evidence : data.evidence) {
    if (evidence.base_dispatch.fallback) return "base";
    if (evidence.candidate_dispatch.fallback) return "candidate";
  }
  return "";
}

std::string JobExecution::ProblemWith(int round, const RoundData& data) const {
  const auto measured =
      verdict::MeasureSeries(data.samples, [](std::size_t index) { return absl::StrCat("sample ", index); });
  if (!measured.ok()) return PrintableText(std::string(measured.status().message()), 512);
  std::map<std::string, int> quads;
  for (const auto& series : job_.plan().series()) quads[series.series()] = series.quads();
  for (const verdict::MeasuredSeries& series : *measured) {
    const auto planned = quads.find(series.name);
    if (planned == quads.end()) return absl::StrCat("series ", PrintableText(series.name, 256), " isn't planned");
    if (series.rounds.size() != 1 || series.rounds[0].round != round) {
      return absl::StrCat("series ", series.name, " has samples of another round");
    }
    if (series.rounds[0].quads != planned->second) {
      return absl::StrCat("series ", series.name, " has ", series.rounds[0].quads, " quads, planned are ",
                          planned->second);
    }
    quads.erase(planned);
  }
  return quads.empty() ? "" : absl::StrCat("series ", quads.begin()->first, " has no samples");
}

absl::Status JobExecution::CommitRound(int round, const RoundData& data) {
  JobChange change = NewChange();
  change.idle_restarts = 0;
  change.round = StoredRound{round, verdict::FormatSamples(data.samples), EncodeEvidence(data)};
  change.job.set_rounds_done(round + 1);
  v1::RoundDone* done = change.events.emplace_back().mutable_round_done();
  done->set_round(round + 1);
  done->set_seconds(data.seconds);
  const auto measured = verdict::MeasureSeries(data.samples, [](std::size_t) { return std::string(); });
  for (const verdict::MeasuredSeries& series : *measured) {  // ProblemWith has seen that it is OK.
    const auto& value = series.rounds[0].value;
    if (value.has_value()) (*done->mutable_differences())[series.name] = *value;
  }
  samples_.insert(samples_.end(), data.samples.begin(), data.samples.end());
  AddRunning(samples_, VerdictConfig(job_.spec(), job_.plan()), round + 1, done);
  auto evidence = DecodeEvidence(change.round->evidence);
  if (!evidence.ok()) return evidence.status();
  evidence_.push_back(*std::move(evidence));
  if (auto status = Judge(&change); !status.ok()) return status;
  return Commit(std::move(change));
}

verdict::Evidence JobExecution::MemoryEvidence() const {
  return {.memory = MemoryVerdict(job_.plan(), JudgeMemory(job_.plan(), evidence_))};
}

absl::Status JobExecution::Judge(JobChange* change) {
  const int rounds = static_cast<int>(evidence_.size());
  const verdict::Config config = VerdictConfig(job_.spec(), job_.plan());
  const auto look = std::find(config.looks.begin(), config.looks.end(), rounds);
  if (look == config.looks.end()) return absl::OkStatus();
  const verdict::Evidence evidence = MemoryEvidence();
  auto decided = verdict::DecideSoFar(samples_, config, evidence);
  if (!decided.ok()) return decided.status();
  outcome_ = *std::move(decided);
  if (change == nullptr) return absl::OkStatus();
  // Judged as if this look were the last, the table also gives the figures of a look that decides nothing.
  auto shown = verdict::Decide(samples_, config, evidence);
  if (!shown.ok()) return shown.status();
  const int next = outcome_.has_value() ? 0 : *(look + 1);  // The last look always decides.
  for (const verdict::Look& taken : shown->looks) {
    if (taken.R == rounds) change->events.push_back(LookEvent(taken, next, shown->rounds_needed.rounds));
  }
  return absl::OkStatus();
}

absl::Status JobExecution::Profile() {
  if (!job_.spec().diagnostics().profile()) return absl::OkStatus();
  auto done = at_.store->Document(job_.name(), "profile");
  if (!done.ok()) return done.status();
  if (!done->empty()) return absl::OkStatus();
  TellProgress("profile", 0);
  auto collected = at_.collector->Profile(arms_, PlannedRuns(job_.plan()), at_.lease, at_.check);
  if (!collected.ok()) return collected.status();
  if (const auto* failure = std::get_if<WorkFailure>(&*collected)) return NoteLoss("profile", *failure);
  JobChange change = NewChange();
  change.documents.emplace_back("profile", JsonText(ProfileJson(std::get<ProfileData>(*collected))));
  return Commit(std::move(change));
}

absl::Status JobExecution::Diagnose() {
  const std::vector<DiagnosticRun> runs = PlannedDiagnostics(job_.spec(), job_.plan());
  if (runs.empty()) return absl::OkStatus();
  auto done = at_.store->Document(job_.name(), "diagnostics");
  if (!done.ok()) return done.status();
  if (!done->empty()) return absl::OkStatus();
  TellProgress("diagnose", 0);
  auto collected = at_.collector->Diagnose(arms_, runs, at_.lease, at_.check);
  if (!collected.ok()) return collected.status();
  if (const auto* failure = std::get_if<WorkFailure>(&*collected)) return NoteLoss("diagnose", *failure);
  const auto& data = std::get<DiagnosticsData>(*collected);
  const auto figures = DiagnosticsJson(runs, data);
  if (!figures.ok()) {
    return NoteLoss("diagnose", {.cause = "harness",
                                 .reason = "BAD_SAMPLES",
                                 .detail = std::string(figures.status().message()),
                                 .partial = data.samples});
  }
  JobChange change = NewChange();
  change.documents.emplace_back("diagnostics", JsonText(*figures));
  change.documents.emplace_back("diagnostics.csv", DiagnosticsCsv(data.samples));
  return Commit(std::move(change));
}

absl::Status JobExecution::NoteLoss(absl::string_view phase, const WorkFailure& failure) {
  JobChange change = NewChange();
  change.loss = ToLoss(phase, -1, failure);
  return Commit(std::move(change));
}

absl::Status JobExecution::Lose(absl::string_view phase, int round, const WorkFailure& failure) {
  JobChange change = NewChange();
  change.loss = ToLoss(phase, round, failure);
  const std::string where = round >= 0 ? absl::StrCat("round ", round + 1) : absl::StrCat("the ", phase);
  const std::string what = absl::StrCat(failure.cause, ": ", PrintableText(failure.detail, 1024));
  if (failure.is_contract) {
    return Finish({.verdict = "CONTRACT_FAILED",
                   .reason = LossReason(failure),
                   .detail = absl::StrCat("in ", where, ", ", what),
                   .failure_cause = IsArm(failure.cause) ? failure.cause : ""},
                  std::move(change));
  }
  std::size_t counted = 0;
  bool arm_failed_before = false;
  for (const StoredLoss& loss : losses_) {
    if (loss.phase == "profile" || loss.phase == "diagnose") continue;  // They never decide.
    ++counted;
    arm_failed_before |= IsArm(failure.cause) && loss.cause == failure.cause && loss.phase == "round" &&
                         phase == "round" && loss.round != round;
  }
  if (arm_failed_before || counted >= kMaxLosses) {
    return Finish({.verdict = "FAILED",
                   .reason = LossReason(failure),
                   .detail = absl::StrCat(
                       arm_failed_before ? absl::StrCat("the ", failure.cause, " arm failed in two rounds, last in ")
                                         : absl::StrCat("lost for the ", counted + 1, "th time, last in "),
                       where, ", ", what, "; see excluded.csv for what had been measured"),
                   .failure_cause = failure.cause},
                  std::move(change));
  }
  v1::RoundDiscarded* discarded = change.events.emplace_back().mutable_round_discarded();
  discarded->set_round(round + 1);
  discarded->set_cause(failure.cause);
  discarded->set_reason(failure.reason);
  discarded->set_detail(absl::StrCat(where, ": ", PrintableText(failure.detail, 1024)));
  return Commit(std::move(change));
}

absl::Status JobExecution::FinishWithOutcome() {
  JobChange change = NewChange();
  const bool is_aa = arms_.base_variant == arms_.candidate_variant && arms_.injected_effect == 0;
  if (is_aa && !outcome_->looks.empty()) {
    change.calibration = CalibrationPoints(at_.device, outcome_->looks.back());
  }
  return Finish(JudgedEnd(*outcome_, arms_.sequential), std::move(change));
}

absl::Status JobExecution::FinishOverBudget(double used_seconds) {
  verdict::Evidence known = MemoryEvidence();
  known.for_more_rounds = "raise max_device_seconds, or take fewer or smaller shapes";
  auto decided = verdict::Decide(samples_, VerdictConfig(job_.spec(), job_.plan()), known);
  if (!decided.ok()) return decided.status();
  outcome_ = *std::move(decided);
  outcome_->detail = absl::StrCat("Ended after ", job_.rounds_done(), " rounds: they used ", FixedText(used_seconds, 1),
                                  " device seconds, max_device_seconds is ",
                                  DoubleText(job_.spec().max_device_seconds()), ". ", outcome_->detail);
  return FinishWithOutcome();
}

absl::Status JobExecution::Finish(const JobEnd& end, JobChange change) {
  EndJob(end, &change);
  if (auto status = Commit(std::move(change)); !status.ok()) return status;
  ended_ = true;
  spdlog::info("{} ended: {} {} after {} rounds", job_.name(), end.verdict, end.reason, job_.rounds_done());
  return absl::OkStatus();
}

absl::Status JobExecution::Pause(std::chrono::milliseconds length) const {
  const auto end = std::chrono::steady_clock::now() + length;
  while (std::chrono::steady_clock::now() < end) {
    if (auto stop = at_.check(); !stop.ok()) return stop;
    std::this_thread::sleep_for(kCheckInterval);
  }
  return absl::OkStatus();
}

absl::Status JobExecution::Commit(JobChange change) {
  bool warned = false;
  while (true) {
    const absl::Status status = at_.store->Apply(change);
    if (status.ok()) break;
    if (absl::IsFailedPrecondition(status) || absl::IsNotFound(status)) {
      return absl::CancelledError("the job was ended by somebody else");
    }
    if (!warned) spdlog::warn("{} waits: {}", job_.name(), std::string(status.message()));
    warned = true;
    if (auto stop = Pause(kStoreRetryDelay); !stop.ok()) return stop;
  }
  if (warned) spdlog::info("{} goes on: the job store takes writes again", job_.name());
  if (change.loss.has_value()) losses_.push_back(*std::move(change.loss));
  job_ = std::move(change.job);
  return absl::OkStatus();
}

}  // namespace keval::server
