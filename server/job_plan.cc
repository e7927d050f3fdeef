#include "server/job_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/field_error.h"
#include "base/number.h"
#include "core/linear_logp/chunk_plan.h"
#include "core/verdict/margin.h"
#include "server/job_spec.h"

namespace keval::server {
namespace {

constexpr double kNsPerSecond = 1e9;
constexpr double kTimedSecondsWanted = 0.25;  // A block's timed repetitions need not last longer.
constexpr double kSlowCallSeconds = 0.1;      // From here on one discarded repetition is enough.
constexpr double kSlowBlockSeconds = 1;       // From here on four quads are.
constexpr int kSlowQuads = 4;

struct Repetitions {
  int quads;
  int timed;
  int discarded;
};

// The spec's numbers are the most; a slow shape takes less.
Repetitions ForCallSeconds(const v1::Procedure& procedure, double seconds) {
  Repetitions out{procedure.quads(), procedure.timed_repetitions(), procedure.discarded_repetitions()};
  if (!(seconds > 0)) return out;
  const double wanted = std::ceil(kTimedSecondsWanted / seconds);
  if (wanted < out.timed) out.timed = std::max(1, static_cast<int>(wanted));
  if (seconds > kSlowCallSeconds) out.discarded = std::min(1, out.discarded);
  if (seconds * (out.timed + out.discarded) > kSlowBlockSeconds) out.quads = std::min(kSlowQuads, out.quads);
  return out;
}

void SetDelta(const v1::BenchmarkSpec& spec, const NoiseRecord& noise, v1::JobPlan::SeriesPlan* series) {
  for (const std::string& key : {series->series(), series->role()}) {
    const auto margin = spec.margins().find(key);
    if (margin == spec.margins().end()) continue;
    series->set_delta(margin->second);
    series->set_delta_source(absl::StrCat("spec:", key));
    return;
  }
  const auto known = noise.by_series.find(series->series());
  if (known == noise.by_series.end()) {
    series->set_delta(verdict::CalibratedMargin({}));
    series->set_delta_source("default");
    return;
  }
  series->set_delta(verdict::CalibratedMargin(known->second.means));
  series->set_delta_source("calibration");
  *series->mutable_delta_calibration() = known->second.source;
}

void SetTraffic(v1::JobPlan::SeriesPlan* series) {
  const v1::Shape& shape = series->shape();
  const auto plan =
      linear_logp::MakeChunkPlan(shape.num_tokens(), shape.hidden_size(), shape.vocab_size(), shape.chunk_elems());
  if (!plan.ok()) return;  // NormalizeSpec has refused such a shape.
  auto* traffic = series->mutable_traffic();
  traffic->set_chunk_tokens(plan->chunk_tokens);
  traffic->set_chunks(plan->chunks);
  traffic->set_base_bytes(plan->base_bytes);
  traffic->set_candidate_bytes(plan->candidate_bytes);
  traffic->set_saving_bytes(plan->saving_bytes);
  traffic->set_add_ops_saved(plan->add_ops_saved);
}

verdict::Role ToRole(absl::string_view role) {
  if (role == verdict::RoleName(verdict::Role::kControl)) return verdict::Role::kControl;
  return role == verdict::RoleName(verdict::Role::kGuard) ? verdict::Role::kGuard : verdict::Role::kPrimary;
}

std::int64_t CeilDivide(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

DiagnosticRun MakeDiagnostic(const v1::JobPlan::SeriesPlan& series, absl::string_view suffix, DiagnosticRegion region) {
  DiagnosticRun run{
      .name = absl::StrCat(series.series(), "/", suffix), .shape = ToWorkShape(series.shape()), .region = region};
  run.timed_repetitions = std::min(run.timed_repetitions, series.timed_repetitions());
  run.discarded_repetitions = std::min(run.discarded_repetitions, series.discarded_repetitions());
  return run;
}

}  // namespace

double SeriesDeviceSeconds(const v1::JobPlan::SeriesPlan& series, const TurnSeconds& base, const TurnSeconds& other,
                           bool sequential) {
  const double blocks = 2.0 * series.quads();  // Of each arm.
  const double repetitions = blocks * (series.timed_repetitions() + series.discarded_repetitions());
  return repetitions * (base.repetition + other.repetition) +
         (1 + (sequential ? blocks : 0)) * (base.preparation + other.preparation);
}

v1::JobPlan MakePlan(const v1::BenchmarkSpec& spec, const PilotData& pilot, const NoiseRecord& noise) {
  v1::JobPlan plan;
  plan.set_procedure_version(kProcedureVersion);
  const std::pair<verdict::Role, const google::protobuf::RepeatedPtrField<v1::Shape>*> roles[] = {
      {verdict::Role::kPrimary, &spec.primaries()},
      {verdict::Role::kGuard, &spec.guards()},
      {verdict::Role::kControl, &spec.controls()}};
  const bool sequential = spec.procedure().process_mode() == v1::PROCESS_MODE_SEQUENTIAL;
  double round_seconds = 0;
  for (const auto& [role, shapes] : roles) {
    const bool control = role == verdict::Role::kControl;
    for (const v1::Shape& shape : *shapes) {
      auto* series = plan.add_series();
      series->set_series(absl::StrCat(control ? "ctl:" : "", SeriesName(shape)));
      series->set_role(std::string(verdict::RoleName(role)));
      *series->mutable_shape() = shape;
      if (!control) SetDelta(spec, noise, series);
      const auto base = pilot.base_ns.find(series->series());
      if (base != pilot.base_ns.end()) series->set_pilot_ns(base->second);
      const double seconds = series->pilot_ns() / kNsPerSecond;
      const Repetitions repetitions = ForCallSeconds(spec.procedure(), seconds);
      series->set_quads(repetitions.quads);
      series->set_timed_repetitions(repetitions.timed);
      series->set_discarded_repetitions(repetitions.discarded);
      const auto found = pilot.turns.find(series->series());
      const TurnSeconds turn = found == pilot.turns.end() ? TurnSeconds{0, seconds} : found->second;
      const auto other = pilot.candidate_turns.find(series->series());
      round_seconds +=
          SeriesDeviceSeconds(*series, turn, other == pilot.candidate_turns.end() ? turn : other->second, sequential);
      SetTraffic(series);
    }
  }
  for (const std::string& unused : noise.unused) plan.add_unused_calibrations(unused);
  const auto& looks = spec.procedure().looks();
  const int rounds = looks.empty() ? 0 : looks.Get(looks.size() - 1);
  plan.set_predicted_device_seconds(rounds * round_seconds);
  return plan;
}

absl::Status CheckBudget(const v1::BenchmarkSpec& spec, const v1::JobPlan& plan) {
  if (plan.predicted_device_seconds() <= spec.max_device_seconds()) return absl::OkStatus();
  const std::string predicted = FixedText(plan.predicted_device_seconds(), 1);
  const std::string budget = DoubleText(spec.max_device_seconds());
  return WithField(
      absl::FailedPreconditionError(absl::StrCat("max_device_seconds: the plan predicts ", predicted,
                                                 " device seconds to the last look, the budget is ", budget)),
      {"max_device_seconds", budget, absl::StrCat("at least ", predicted)});
}

std::vector<SeriesRun> PlannedRuns(const v1::JobPlan& plan) {
  std::vector<SeriesRun> runs;
  for (const auto& series : plan.series()) {
    runs.push_back({.series = series.series(),
                    .role = ToRole(series.role()),
                    .shape = ToWorkShape(series.shape()),
                    .quads = series.quads(),
                    .timed_repetitions = series.timed_repetitions(),
                    .discarded_repetitions = series.discarded_repetitions()});
  }
  return runs;
}

std::vector<DiagnosticRun> PlannedDiagnostics(const v1::BenchmarkSpec& spec, const v1::JobPlan& plan) {
  std::vector<DiagnosticRun> runs;
  for (const auto& series : plan.series()) {
    if (ToRole(series.role()) == verdict::Role::kControl) continue;
    if (spec.diagnostics().backward_only()) {
      runs.push_back(MakeDiagnostic(series, "backward", DiagnosticRegion::kBackward));
    }
    if (spec.diagnostics().isolated_weight_gradient()) {
      runs.push_back(MakeDiagnostic(series, "weight_gradient", DiagnosticRegion::kWeightGradient));
    }
    if (ToRole(series.role()) != verdict::Role::kPrimary) continue;
    for (const std::int64_t chunks : spec.diagnostics().chunk_sweep()) {
      DiagnosticRun run = MakeDiagnostic(series, absl::StrCat("chunks=", chunks), DiagnosticRegion::kForwardBackward);
      run.shape.chunk_elems = CeilDivide(run.shape.num_tokens, chunks) * run.shape.vocab_size;
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

verdict::Config VerdictConfig(const v1::BenchmarkSpec& spec, const v1::JobPlan& plan) {
  verdict::Config config;
  const auto& procedure = spec.procedure();
  config.looks.assign(procedure.looks().begin(), procedure.looks().end());
  config.a_sup.assign(procedure.a_sup().begin(), procedure.a_sup().end());
  config.a_eq.assign(procedure.a_eq().begin(), procedure.a_eq().end());
  config.a_ctl.assign(procedure.a_ctl().begin(), procedure.a_ctl().end());
  config.delta.clear();
  for (const auto& series : plan.series()) {
    if (ToRole(series.role()) != verdict::Role::kControl) config.delta[series.series()] = series.delta();
  }
  return config;
}

}  // namespace keval::server
