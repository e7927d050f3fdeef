#include "core/verdict/calibration_json.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/number.h"
#include "base/text.h"
#include "core/verdict/json.h"
#include "core/verdict/strict_json.h"

namespace keval::verdict {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr char kAa[] = "aa";
constexpr char kInjected[] = "injected";

template <typename AnyJson>
std::string Dump(const AnyJson& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, AnyJson::error_handler_t::replace);
}

// The member `key` of the object at `path`.
absl::StatusOr<const Json*> Member(absl::string_view path, const Json& object, const char* key) {
  if (!object.is_object()) return InvalidField(path, "something else", "an object");
  const auto found = object.find(key);
  if (found == object.end()) return InvalidField(absl::StrCat(path, ".", key), "missing", "there");
  return &*found;
}

absl::StatusOr<double> NumberAt(absl::string_view path, const Json& object, const char* key) {
  const auto member = Member(path, object, key);
  if (!member.ok()) return member.status();
  if (!(*member)->is_number() || !std::isfinite((*member)->get<double>())) {
    return InvalidField(absl::StrCat(path, ".", key), PrintableText((*member)->dump(-1, ' ', true), 80), "a number");
  }
  return (*member)->get<double>();
}

absl::StatusOr<std::string> TextAt(absl::string_view path, const Json& object, const char* key) {
  const auto member = Member(path, object, key);
  if (!member.ok()) return member.status();
  if (!(*member)->is_string()) return InvalidField(absl::StrCat(path, ".", key), "something else", "a text");
  return (*member)->get<std::string>();
}

absl::StatusOr<CalibrationRound> ReadRound(const std::string& path, const Json& value) {
  const auto kind = TextAt(path, value, "kind");
  if (!kind.ok()) return kind.status();
  const auto effect = NumberAt(path, value, "effect");
  if (!effect.ok()) return effect.status();
  const auto started = Member(path, value, "started");
  if (!started.ok()) return started.status();
  const auto series = Member(path, value, "series");
  if (!series.ok()) return series.status();
  const std::string inside = absl::StrCat(path, ".series");
  const auto primary = NumberAt(inside, **series, "primary");
  if (!primary.ok()) return primary.status();
  const auto control = NumberAt(inside, **series, "control");
  if (!control.ok()) return control.status();
  if (*kind != kAa && *kind != kInjected) {
    return InvalidField(absl::StrCat(path, ".kind"), PrintableText(*kind, 80), "aa or injected");
  }
  if ((*kind == kAa) != (*effect == 0)) {
    return InvalidField(absl::StrCat(path, ".effect"), DoubleText(*effect),
                        *kind == kAa ? "0 in an A/A round" : "other than 0 in an injected round");
  }
  const std::string when = (*started)->is_string() ? (*started)->get<std::string>() : Dump(**started);
  return CalibrationRound{*effect, when, *primary, *control};
}

// `from_round` of each entry of `collected`.
absl::StatusOr<std::vector<std::size_t>> SessionStarts(const Json& collected) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < collected.size(); ++i) {
    const auto from = Member(absl::StrCat("collected[", i, "]"), collected[i], "from_round");
    if (!from.ok()) return from.status();
    if (!(*from)->is_number_unsigned() || (i > 0 && (*from)->get<std::size_t>() < starts.back())) {
      return InvalidField(absl::StrCat("collected[", i, "].from_round"),
                          PrintableText((*from)->dump(-1, ' ', true), 80),
                          "a number of rounds, not less than the entry's before");
    }
    starts.push_back((*from)->get<std::size_t>());
  }
  return starts;
}

OrderedJson LagToJson(const SerialCorrelation& lag1) {
  return {{"lag1", NumberToJson(lag1.lag1)}, {"lo", lag1.lo}, {"hi", lag1.hi}, {"pairs", lag1.pairs}};
}

OrderedJson ShareToJson(const Proportion& share) {
  return {{"count", share.count},
          {"trials", share.trials},
          {"rate", NumberToJson(share.rate)},
          {"lo", share.lo},
          {"hi", share.hi}};
}

const char* FormedName(bool resampled) { return resampled ? "resampled" : "disjoint"; }

OrderedJson RatesToJson(const JobRates& rates) {
  OrderedJson json = {
      {"rounds", rates.rounds}, {"formed", FormedName(rates.resampled)}, {"jobs", rates.improved.trials}};
  json["independent_jobs"] = rates.independent_jobs;
  json["improved"] = ShareToJson(rates.improved);
  json["equivalent"] = ShareToJson(rates.equivalent);
  json["regressed"] = ShareToJson(rates.regressed);
  json["control_failed"] = ShareToJson(rates.control_failed);
  json["undecided"] = ShareToJson(rates.undecided);
  json["wrong_sign"] = ShareToJson(rates.wrong_sign);
  json["covered"] = ShareToJson(rates.covered);
  return json;
}

OrderedJson TargetToJson(const Target& target) {
  OrderedJson json = {{"id", target.id},
                      {"text", target.text},
                      {"least", target.least},
                      {"most", target.most},
                      {"status", target.status}};
  json["rates"] = OrderedJson::array();
  for (const TargetRate& rate : target.rates) {
    OrderedJson entry = {{"rounds", rate.rounds}, {"formed", FormedName(rate.resampled)}};
    entry.update(ShareToJson(rate.share));
    entry["independent_jobs"] = rate.independent_jobs;
    entry["status"] = rate.status;
    if (rate.jobs_needed > 0) {
      entry["jobs_needed"] = rate.jobs_needed;
      entry["rounds_needed"] = rate.jobs_needed * rate.rounds;
    }
    json["rates"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace

absl::StatusOr<CalibrationFile> ParseCalibration(absl::string_view text) {
  const auto document = ParseStrictJson("calibration", text);
  if (!document.ok()) return document.status();
  const auto device = Member("calibration", *document, "device");
  if (!device.ok()) return device.status();
  const auto rounds = Member("calibration", *document, "rounds");
  if (!rounds.ok()) return rounds.status();
  if (!(*rounds)->is_array()) return InvalidField("rounds", "something else", "a list");
  CalibrationFile file{.device = **device};
  if (document->contains("spec")) file.spec = document->at("spec");
  if (document->contains("job")) file.job = document->at("job");
  file.collected = document->contains("collected") ? document->at("collected") : Json::array();
  if (!file.collected.is_array()) return InvalidField("collected", "something else", "a list");
  const auto starts = SessionStarts(file.collected);
  if (!starts.ok()) return starts.status();
  for (std::size_t i = 0; i < (*rounds)->size(); ++i) {
    auto round = ReadRound(absl::StrCat("rounds[", i, "]"), (**rounds)[i]);
    if (!round.ok()) return round.status();
    round->session = static_cast<int>(std::upper_bound(starts->begin(), starts->end(), i) - starts->begin());
    file.rounds.push_back(*std::move(round));
  }
  return file;
}

std::string FormatCalibration(const CalibrationFile& file) {
  std::string text = absl::StrCat("{\"device\": ", Dump(file.device), ",\n \"spec\": ", Dump(file.spec),
                                  ",\n \"collected\": ", Dump(file.collected));
  if (!file.job.is_null()) absl::StrAppend(&text, ",\n \"job\": ", Dump(file.job));
  text += ",\n \"rounds\": [";
  const char* separator = "\n";
  for (const CalibrationRound& round : file.rounds) {
    const OrderedJson entry = {{"kind", round.effect == 0 ? kAa : kInjected},
                               {"effect", round.effect},
                               {"started", round.started},
                               {"series", {{"primary", round.primary}, {"control", round.control}}}};
    absl::StrAppend(&text, separator, "  ", Dump(entry));
    separator = ",\n";
  }
  return absl::StrCat(text, "\n ]}\n");
}

OrderedJson CharacteristicsToJson(const Characteristics& characteristics) {
  OrderedJson json = {{"delta", characteristics.delta},
                      {"delta_source", characteristics.delta_source},
                      {"resampled_jobs", characteristics.resampled_jobs},
                      {"seed", characteristics.seed},
                      {"block_rounds", characteristics.block_rounds},
                      {"autocorrelation", LagToJson(characteristics.lag1)}};
  const SerialEffect& serial = characteristics.serial_effect;
  json["autocorrelation"]["at_first_look"] = {{"rounds", serial.rounds},
                                              {"level", serial.level},
                                              {"reached", serial.reached},
                                              {"reached_at_hi", serial.reached_hi},
                                              {"level_to_ask_for", serial.ask_for}};
  json["notes"] = characteristics.notes;
  json["targets"] = OrderedJson::array();
  for (const Target& target : characteristics.targets) json["targets"].push_back(TargetToJson(target));
  json["effects"] = OrderedJson::array();
  for (const EffectRates& effect : characteristics.effects) {
    OrderedJson entry = {{"effect", effect.effect},
                         {"rounds", effect.rounds},
                         {"runs", effect.runs},
                         {"mean", NumberToJson(effect.mean)},
                         {"sd", NumberToJson(effect.sd)},
                         {"autocorrelation", LagToJson(effect.lag1)},
                         {"control_mean", NumberToJson(effect.control_mean)},
                         {"control_sd", NumberToJson(effect.control_sd)},
                         {"control_autocorrelation", LagToJson(effect.control_lag1)}};
    entry["jobs"] = OrderedJson::array();
    for (const JobRates& rates : effect.jobs) entry["jobs"].push_back(RatesToJson(rates));
    json["effects"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace keval::verdict
