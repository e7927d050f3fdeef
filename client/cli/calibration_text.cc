#include "client/cli/calibration_text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/number.h"
#include "base/text.h"

namespace keval::cli {
namespace {

std::string Percent(double share, int digits) { return absl::StrCat(FixedText(100 * share, digits), " %"); }

// ln units.
std::string Gain(double log_ratio) {
  return absl::StrCat(log_ratio < 0 ? "" : "+", FixedText(100 * std::expm1(log_ratio), 3), " %");
}

std::string RateText(const verdict::TargetRate& rate) {
  std::string text =
      absl::StrCat("    ", rate.resampled ? "resampled" : "disjoint", " jobs of ", rate.rounds, " rounds: ");
  if (rate.share.trials == 0) return absl::StrCat(text, "none\n");
  absl::StrAppend(&text, rate.share.count, " of ", rate.share.trials, ", ", Percent(rate.share.rate, 2), " [",
                  Percent(rate.share.lo, 2), ", ", Percent(rate.share.hi, 2), "], ", rate.status);
  if (rate.resampled) absl::StrAppend(&text, ", worth ", FixedText(rate.independent_jobs, 1), " independent jobs");
  if (rate.jobs_needed > 0) {
    absl::StrAppend(&text, ": too few, ", FixedText(std::min<double>(rate.independent_jobs, rate.share.trials), 0),
                    " of ", FixedText(rate.jobs_needed, 0), " needed (", FixedText(rate.jobs_needed * rate.rounds, 0),
                    " rounds)");
  }
  return absl::StrCat(text, "\n");
}

// "0.33 [-0.06, 0.63]".
std::string LagText(const verdict::SerialCorrelation& lag) {
  return absl::StrCat(FixedText(lag.lag1, 2), " [", FixedText(lag.lo, 2), ", ", FixedText(lag.hi, 2), "]");
}

}  // namespace

std::string CharacteristicsText(const verdict::CalibrationFile& file, const verdict::Characteristics& shown) {
  const std::string device = file.device.is_string() ? file.device.get<std::string>() : file.device.dump(-1, ' ', true);
  std::string text = absl::StrCat(PrintableText(device, 256), ": ", file.rounds.size(), " rounds, margin ",
                                  Percent(shown.delta, 2), " (", shown.delta_source, ")\n");
  for (const verdict::EffectRates& effect : shown.effects) {
    absl::StrAppend(&text, effect.effect == 0 ? "  A/A" : absl::StrCat("  injected ", Gain(effect.effect)), ": ",
                    effect.rounds, " rounds in ", effect.runs, " runs, mean ", Gain(effect.mean), ", sd ",
                    Percent(effect.sd, 3), ", lag-1 ", LagText(effect.lag1), "; control ", Gain(effect.control_mean),
                    ", sd ", Percent(effect.control_sd, 3), ", lag-1 ", LagText(effect.control_lag1), "\n");
  }
  for (const verdict::Target& target : shown.targets) {
    absl::StrAppend(&text, "  ", target.status, "  ", target.text, "\n");
    for (const verdict::TargetRate& rate : target.rates) text += RateText(rate);
  }
  for (const std::string& note : shown.notes) absl::StrAppend(&text, "  ", note, "\n");
  return text;
}

}  // namespace keval::cli
