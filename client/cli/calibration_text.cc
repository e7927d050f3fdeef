#include "client/cli/calibration_text.h"

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
  std::string text = absl::StrCat("    ", rate.status, "  ", rate.resampled ? "resampled" : "disjoint", " jobs of ",
                                  rate.rounds, " rounds: ");
  if (rate.share.trials == 0) return absl::StrCat(text, "none\n");
  absl::StrAppend(&text, rate.share.count, " of ", rate.share.trials, ", ", Percent(rate.share.rate, 2), " [",
                  Percent(rate.share.lo, 2), ", ", Percent(rate.share.hi, 2), "]\n");
  return text;
}

}  // namespace

std::string CharacteristicsText(const verdict::CalibrationFile& file, const verdict::Characteristics& shown) {
  const std::string device = file.device.is_string() ? file.device.get<std::string>() : file.device.dump(-1, ' ', true);
  std::string text = absl::StrCat(PrintableText(device, 256), ": ", file.rounds.size(), " rounds, margin ",
                                  Percent(shown.delta, 2), " (", shown.delta_source, ")\n");
  for (const verdict::EffectRates& effect : shown.effects) {
    absl::StrAppend(&text, effect.effect == 0 ? "  A/A" : absl::StrCat("  injected ", Gain(effect.effect)), ": ",
                    effect.rounds, " rounds, mean ", Gain(effect.mean), ", sd ", Percent(effect.sd, 3), "; control ",
                    Gain(effect.control_mean), ", sd ", Percent(effect.control_sd, 3), "\n");
  }
  for (const verdict::Target& target : shown.targets) {
    absl::StrAppend(&text, "  ", target.text, "\n");
    for (const verdict::TargetRate& rate : target.rates) text += RateText(rate);
  }
  return text;
}

}  // namespace keval::cli
