#include "core/verdict/verdict.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/text.h"
#include "core/verdict/explanation.h"
#include "core/verdict/measured_series.h"
#include "core/verdict/statistics.h"

namespace keval::verdict {
namespace {

absl::Status CheckMargins(const std::vector<MeasuredSeries>& series, const Config& config) {
  for (const MeasuredSeries& one : series) {
    if (one.role == Role::kControl || !std::isnan(DeltaOf(config, one.name, one.role))) continue;
    const std::string name = PrintableText(one.name, 256);
    return InvalidField(absl::StrCat("delta.", name), "(none)",
                        absl::StrCat("a margin for series ", name, " or for its role, ", RoleName(one.role)));
  }
  for (const auto& [name, delta] : config.delta) {
    const auto has_name = [&name = name](const MeasuredSeries& one) { return one.name == name; };
    const bool is_role = name == "primary" || name == "guard" || name == "control";
    if (is_role || std::any_of(series.begin(), series.end(), has_name)) continue;
    return InvalidField(absl::StrCat("delta.", PrintableText(name, 256)), "a name that the samples don't hold",
                        "a series of the samples file, primary or guard");
  }
  return absl::OkStatus();
}

// Measured and fit to be judged under `config`.
absl::StatusOr<std::vector<MeasuredSeries>> Measure(const std::vector<Sample>& samples, const Config& config) {
  auto series = MeasureSeries(samples, [](std::size_t i) { return absl::StrCat("sample ", i + 1); });
  if (!series.ok()) return series.status();
  const auto is_primary = [](const MeasuredSeries& one) { return one.role == Role::kPrimary; };
  if (std::none_of(series->begin(), series->end(), is_primary)) {
    return WithField(absl::InvalidArgumentError("samples: no series has the role primary; a verdict needs one"),
                     {"samples", "no series of role primary", "at least one series of role primary"});
  }
  if (absl::Status status = CheckMargins(*series, config); !status.ok()) return status;
  return series;
}

int RoundsReached(const std::vector<MeasuredSeries>& series) {
  int rounds = 0;
  for (const MeasuredSeries& one : series) {
    if (!one.rounds.empty()) rounds = std::max(rounds, one.rounds.back().round + 1);
  }
  return rounds;
}

void CountThrottling(const std::vector<MeasuredSeries>& series, Outcome* outcome) {
  int quads = 0;
  int dropped = 0;
  for (const MeasuredSeries& one : series) {
    for (const MeasuredRound& round : one.rounds) {
      quads += round.quads;
      dropped += round.quads_dropped;
      for (std::size_t arm = 0; arm < 2; ++arm) outcome->throttled_blocks.at(arm) += round.throttled_blocks.at(arm);
    }
  }
  outcome->quads_dropped = quads == 0 ? 0 : static_cast<double>(dropped) / quads;
  outcome->throttle_asym_p = BinomialTwoSidedP(outcome->throttled_blocks[0], outcome->throttled_blocks[1]);
}

void Conclude(Rule rule, absl::string_view verdict, absl::string_view reason, Outcome* outcome) {
  outcome->rule = rule;
  outcome->verdict = std::string(verdict);
  outcome->reason = std::string(reason);
}

// Rows 1 and 2, which ask no samples. Whether one holds.
bool FailsByEvidence(const Evidence& evidence, Outcome* outcome) {
  if (!evidence.contract_failure.empty()) {
    Conclude(Rule::kContractFailed, "CONTRACT_FAILED", evidence.contract_failure, outcome);
    return true;
  }
  if (!evidence.failure.empty()) {
    Conclude(Rule::kFailed, "FAILED", evidence.failure, outcome);
    return true;
  }
  return false;
}

// Rows 3 and 4.
bool FailsByThrottling(const Config& config, Outcome* outcome) {
  if (outcome->throttle_asym_p < config.thr_asym_p) {
    Conclude(Rule::kThrottleAsymmetry, "INCONCLUSIVE", "THROTTLE_ASYMMETRY", outcome);
    return true;
  }
  if (outcome->quads_dropped > config.thr_quads_max) {
    Conclude(Rule::kThrottleBudget, "INCONCLUSIVE", "THROTTLE_BUDGET", outcome);
    return true;
  }
  return false;
}

// Rows 5 to 9 at one look. A short look has no candidate, and so passes rows 6 to 9.
bool DecidesAt(const Look& look, Outcome* outcome) {
  if (!look.has_control) {
    Conclude(Rule::kControl, "INCONCLUSIVE", "NO_CONTROL", outcome);
  } else if (look.control_fail) {
    Conclude(Rule::kControl, "INCONCLUSIVE", "CONTROL_FAILED", outcome);
  } else if (!look.control_ok || look.candidate.empty()) {
    return false;
  } else if (look.candidate == "REGRESSED") {
    Conclude(Rule::kRegressed, "REGRESSED", "", outcome);
  } else if (look.candidate == "TAIL") {
    Conclude(Rule::kTailConflict, "INCONCLUSIVE", "TAIL_CONFLICT", outcome);
  } else if (look.candidate == "EQUIVALENT") {
    Conclude(Rule::kEquivalent, "EQUIVALENT", "", outcome);
  } else if (outcome->memory == Memory::kNotMet) {
    Conclude(Rule::kMemory, "INCONCLUSIVE", "MEMORY", outcome);
  } else {
    Conclude(Rule::kImproved, "IMPROVED", "", outcome);
  }
  outcome->stop_look = look.R;
  return true;
}

bool IsShort(const Look& look) {
  return std::any_of(look.series.begin(), look.series.end(), [](const SeriesLook& one) { return one.is_short; });
}

bool IsNonInferior(const Look& look) {
  if (!look.control_ok || IsShort(look)) return false;
  return std::all_of(look.series.begin(), look.series.end(),
                     [](const SeriesLook& one) { return one.role == Role::kControl || one.non_inferior; });
}

// Row 11, after the looks that the rounds reach.
void ConcludeUndecided(const Config& config, Outcome* outcome) {
  if (!outcome->looks.empty() && IsShort(outcome->looks.back())) {
    Conclude(Rule::kBudget, "INCONCLUSIVE", "MISSING_ROUNDS", outcome);
    outcome->stop_look = outcome->looks.back().R;
    return;
  }
  Conclude(Rule::kBudget, "INCONCLUSIVE", "BUDGET", outcome);
  outcome->stop_look = config.looks.back();
  if (!outcome->looks.empty()) outcome->rounds_needed = EstimateRoundsNeeded(outcome->looks.back(), config);
}

void AskLooks(const std::vector<MeasuredSeries>& series, const Config& config, int rounds, Outcome* outcome) {
  for (std::size_t i = 0; i < config.looks.size() && config.looks[i] <= rounds; ++i) {
    outcome->looks.push_back(TakeLook(series, config, i));
    if (DecidesAt(outcome->looks.back(), outcome)) return;
  }
  ConcludeUndecided(config, outcome);
}

std::vector<Look> LooksReached(const std::vector<MeasuredSeries>& series, const Config& config) {
  std::vector<Look> looks;
  const int rounds = RoundsReached(series);
  for (std::size_t i = 0; i < config.looks.size() && config.looks[i] <= rounds; ++i) {
    looks.push_back(TakeLook(series, config, i));
  }
  return looks;
}

}  // namespace

absl::string_view MemoryName(Memory memory) {
  switch (memory) {
    case Memory::kNotRecorded:
      return "not_recorded";
    case Memory::kMet:
      return "met";
    case Memory::kNotMet:
      return "not_met";
  }
  return "unknown";
}

std::string RuleName(Rule rule) { return rule == Rule::kMemory ? "7b" : absl::StrCat(static_cast<int>(rule)); }

absl::StatusOr<Outcome> Decide(const std::vector<Sample>& samples, const Config& config, const Evidence& evidence) {
  if (absl::Status status = ValidateConfig(config); !status.ok()) return status;
  Outcome outcome{.memory = evidence.memory};
  const bool failed = FailsByEvidence(evidence, &outcome);
  if (failed && samples.empty()) {
    outcome.detail = Explain(outcome, config, evidence.for_more_rounds);
    return outcome;
  }
  const auto series = Measure(samples, config);
  if (!series.ok()) return series.status();
  outcome.rounds = RoundsReached(*series);
  CountThrottling(*series, &outcome);
  if (failed) {
    outcome.looks = LooksReached(*series, config);
  } else if (!FailsByThrottling(config, &outcome)) {
    AskLooks(*series, config, outcome.rounds, &outcome);
    outcome.non_inferior = !outcome.looks.empty() && IsNonInferior(outcome.looks.back());
  }
  outcome.detail = Explain(outcome, config, evidence.for_more_rounds);
  return outcome;
}

Outcome DecideMeasured(const std::vector<MeasuredSeries>& series, const Config& config) {
  Outcome outcome;
  outcome.rounds = RoundsReached(series);
  AskLooks(series, config, outcome.rounds, &outcome);
  outcome.non_inferior = !outcome.looks.empty() && IsNonInferior(outcome.looks.back());
  return outcome;
}

absl::StatusOr<std::optional<Outcome>> DecideSoFar(const std::vector<Sample>& samples, const Config& config,
                                                   const Evidence& evidence) {
  absl::StatusOr<Outcome> outcome = Decide(samples, config, evidence);
  if (!outcome.ok()) return outcome.status();
  if (outcome->rule == Rule::kContractFailed || outcome->rule == Rule::kFailed) return *std::move(outcome);
  int rounds = 0;
  for (const Sample& sample : samples) rounds = std::max(rounds, sample.round + 1);
  const bool at_look = std::find(config.looks.begin(), config.looks.end(), rounds) != config.looks.end();
  if (rounds < config.looks.back() && (!at_look || outcome->rule == Rule::kBudget)) return std::nullopt;
  return *std::move(outcome);
}

absl::StatusOr<std::vector<Look>> TakeLooks(const std::vector<Sample>& samples, const Config& config) {
  if (absl::Status status = ValidateConfig(config); !status.ok()) return status;
  const auto series = Measure(samples, config);
  if (!series.ok()) return series.status();
  return LooksReached(*series, config);
}

}  // namespace keval::verdict
