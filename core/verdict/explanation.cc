#include "core/verdict/explanation.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/number.h"
#include "base/text.h"
#include "core/verdict/config.h"
#include "core/verdict/look.h"
#include "core/verdict/verdict.h"

namespace keval::verdict {
namespace {

// A size in ln units, which has no sign: 0.01 is "1.00 %".
std::string SizeText(double log_ratio) { return absl::StrCat(FixedText(100 * log_ratio, 2), " %"); }

std::string Name(const std::string& series) { return PrintableText(series, 256); }

std::string Figures(const SeriesLook& series) {
  return absl::StrCat(Name(series.series), " ", GainPercentText(series.L), " [", GainPercentText(series.sup_lo), ", ",
                      GainPercentText(series.sup_hi), "], ", series.pos, " of ", series.n, " rounds positive");
}

// `describe` of every series of `look` that `wanted` says yes to, with "; " between them.
template <typename Wanted, typename Describe>
std::string List(const Look& look, const Wanted& wanted, const Describe& describe) {
  std::vector<std::string> parts;
  for (const SeriesLook& series : look.series) {
    if (wanted(series)) parts.push_back(describe(series));
  }
  return absl::StrJoin(parts, "; ");
}

bool IsPrimary(const SeriesLook& series) { return series.role == Role::kPrimary; }
bool IsControl(const SeriesLook& series) { return series.role == Role::kControl; }

std::string RoundsText(const RoundsNeeded& needed) {
  if (needed.rounds == kMoreThanMaxRounds) {
    return absl::StrCat("more than ", kMoreThanMaxRounds - 1, " rounds");
  }
  return absl::StrCat(needed.rounds, needed.rounds == 1 ? " round" : " rounds");
}

// The next step towards a look of `rounds` rounds.
std::string MoreRounds(int rounds, const std::string& for_more_rounds) {
  if (for_more_rounds.empty()) return absl::StrCat("collect on to ", rounds, " rounds");
  return absl::StrCat(for_more_rounds, ", so that ", rounds, " rounds fit");
}

std::string ExplainBudget(const Outcome& outcome, const Config& config, const std::string& for_more_rounds) {
  if (outcome.looks.empty()) {
    return absl::StrCat("Only ", outcome.rounds, " of the ", config.looks.front(),
                        " rounds of the first look were collected. Next step: ",
                        MoreRounds(config.looks.front(), for_more_rounds), ", the first look.");
  }
  const Look& look = outcome.looks.back();
  std::string text = absl::StrCat("No row of the table held after ", look.R, " rounds: ",
                                  List(
                                      look, [](const SeriesLook& s) { return !IsControl(s); }, Figures),
                                  ". ");
  if (!look.control_ok) {
    absl::StrAppend(
        &text, "The control is not shown within ", SizeText(look.eps), " (",
        List(look, IsControl, [](const SeriesLook& s) { return Name(s.series) + " up to " + SizeText(s.ctl_shown); }),
        "). ");
  }
  const RoundsNeeded& needed = outcome.rounds_needed;
  if (outcome.rounds < config.looks.back()) {
    absl::StrAppend(&text, "Next step: ", MoreRounds(config.looks.back(), for_more_rounds), ", the last look");
  } else if (needed.rounds == kMoreThanMaxRounds) {
    absl::StrAppend(&text, "Next step: lower the noise or accept that the effect is too near the margin to decide");
  } else {
    absl::StrAppend(&text, "Next step: a new job whose last look has the rounds it needs, or less noise");
  }
  if (needed.rounds > 0) {
    absl::StrAppend(&text, "; for ", needed.goal, " it would need about ", RoundsText(needed), ", limited by ",
                    Name(needed.limiting_series));
  }
  return text + ".";
}

std::string ExplainControl(const Outcome& outcome) {
  if (outcome.reason == "NO_CONTROL") {
    return "There is no control series, so a bias between two copies of the same code can't be told from a gain. Next "
           "step: run again with a control (base against its own copy on the first primary).";
  }
  const Look& look = outcome.looks.back();
  return absl::StrCat("Base differs from its own copy: ", List(look, IsControl, Figures),
                      ". Something other than the change moves the times. Next step: find it (other processes, clocks, "
                      "core binding, slot order in blocks of the report), then run the job again.");
}

std::string ExplainMissingRounds(const Outcome& outcome, const Config& config, const std::string& for_more_rounds) {
  const Look& look = outcome.looks.back();
  const auto is_short = [](const SeriesLook& series) { return series.is_short; };
  const auto counts = [&look](const SeriesLook& series) {
    return absl::StrCat(Name(series.series), " has a value in ", series.n, " of ", look.R, " rounds");
  };
  if (look.R < kMinDecidingRounds) {
    const int last = config.looks.back();
    return absl::StrCat("A look after ", look.R, " rounds can't decide, which takes at least ", kMinDecidingRounds,
                        ". Next step: ",
                        last < kMinDecidingRounds ? "set the last look to that or more"
                                                  : MoreRounds(last, for_more_rounds) + ", the last look",
                        ".");
  }
  return absl::StrCat(
      "Too many rounds are missing or lost to throttling: ", List(look, is_short, counts),
      ". Next step: see what was excluded and why, mend it, and ",
      for_more_rounds.empty() ? "collect the missing rounds again" : MoreRounds(config.looks.back(), for_more_rounds),
      ".");
}

std::string ExplainRegressed(const Look& look) {
  const auto regressed = [](const SeriesLook& series) { return series.regressed; };
  const auto figures = [](const SeriesLook& series) {
    return absl::StrCat(Figures(series), ", Holm p ", DoubleText(series.p_holm));
  };
  return absl::StrCat("Slower by at least its margin: ", List(look, regressed, figures), ".");
}

}  // namespace

std::string GainPercentText(double log_ratio) { return SignedPercentText(100 * std::expm1(log_ratio)); }

std::string Explain(const Outcome& outcome, const Config& config, const std::string& for_more_rounds) {
  switch (outcome.rule) {
    case Rule::kContractFailed:
      return absl::StrCat("The correctness contract fails: ", PrintableText(outcome.reason), ".");
    case Rule::kFailed:
      return absl::StrCat("The job failed: ", PrintableText(outcome.reason), ".");
    case Rule::kThrottleAsymmetry:
      return absl::StrCat("Throttling struck the arms unequally: ", outcome.throttled_blocks[0], " blocks of A, ",
                          outcome.throttled_blocks[1], " of B (p ", DoubleText(outcome.throttle_asym_p),
                          "). Next step: lock the clocks or cool the device, then run the job again.");
    case Rule::kThrottleBudget:
      return absl::StrCat("Throttling took ", FixedText(100 * outcome.quads_dropped, 1), " % of the quads, more than ",
                          FixedText(100 * config.thr_quads_max, 1),
                          " %. Next step: lock the clocks or cool the device, then run the job again.");
    case Rule::kControl:
      return ExplainControl(outcome);
    case Rule::kRegressed:
      return ExplainRegressed(outcome.looks.back());
    case Rule::kTailConflict: {
      const auto mean_ratio = [](const SeriesLook& series) {
        return absl::StrCat(Figures(series), ", mean ratio ", GainPercentText(series.meanratio_log));
      };
      return absl::StrCat(
          "Medians improve but the mean does not: ", List(outcome.looks.back(), IsPrimary, mean_ratio),
          ". Next step: look for the candidate's slow repetitions in samples.csv; a gain must also hold "
          "for the sum of the times.");
    }
    case Rule::kMemory:
      return absl::StrCat("Faster, but the candidate's incremental peak exceeds base's by more than max(1 %, 1 MiB): ",
                          List(outcome.looks.back(), IsPrimary, Figures),
                          ". Next step: lower the candidate's peak, or decide by hand that the memory is worth it.");
    case Rule::kImproved:
      return absl::StrCat("Every primary improved, no guard is inferior, the control is shown: ",
                          List(outcome.looks.back(), IsPrimary, Figures), ".");
    case Rule::kEquivalent:
      return absl::StrCat("Every shape is within its margin and the control is shown: ",
                          List(
                              outcome.looks.back(), [](const SeriesLook& s) { return !IsControl(s); }, Figures),
                          ".");
    case Rule::kBudget:
      return outcome.reason == "MISSING_ROUNDS" ? ExplainMissingRounds(outcome, config, for_more_rounds)
                                                : ExplainBudget(outcome, config, for_more_rounds);
  }
  return "";
}

}  // namespace keval::verdict
