#include "core/verdict/json.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/number.h"
#include "base/text.h"
#include "core/verdict/strict_json.h"

namespace keval::verdict {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

OrderedJson NumbersToJson(const std::vector<double>& values) {
  OrderedJson list = OrderedJson::array();
  for (const double value : values) list.push_back(NumberToJson(value));
  return list;
}

OrderedJson ArmsToJson(const std::array<int, 2>& counts) { return {{"A", counts[0]}, {"B", counts[1]}}; }

double PercentOf(double log_ratio) { return 100 * std::expm1(log_ratio); }

OrderedJson SeriesLookToJson(const SeriesLook& series) {
  OrderedJson json = {{"role", std::string(RoleName(series.role))}, {"n", series.n}, {"rounds", series.rounds}};
  json["D"] = NumbersToJson(series.D);
  json["L"] = NumberToJson(series.L);
  json["sd"] = NumberToJson(series.sd);
  json["se"] = NumberToJson(series.se);
  json["df"] = series.df;
  json["pos"] = series.pos;
  json["meanratio_log"] = NumberToJson(series.meanratio_log);
  json["p_gain"] = NumberToJson(series.p_gain);
  json["p_loss"] = NumberToJson(series.p_loss);
  if (series.role != Role::kControl) json["p_holm"] = NumberToJson(series.p_holm);
  json["sup_lo"] = NumberToJson(series.sup_lo);
  json["sup_hi"] = NumberToJson(series.sup_hi);
  json["eq_lo"] = NumberToJson(series.eq_lo);
  json["eq_hi"] = NumberToJson(series.eq_hi);
  json["ci95"] = NumbersToJson({series.ci95[0], series.ci95[1]});
  json["ctl_shown"] = NumberToJson(series.ctl_shown);
  json["hodges_lehmann"] = NumberToJson(series.hodges_lehmann);
  json["within_sd"] = NumberToJson(series.within_sd);
  json["smallest_detectable"] = NumberToJson(series.smallest_detectable);
  json["p95_ratio_log"] = NumberToJson(series.p95_ratio_log);
  json["short"] = series.is_short;
  json["non_inferior"] = series.non_inferior;
  json["equivalent"] = series.equivalent;
  json["improved"] = series.improved;
  json["regressed"] = series.regressed;
  return json;
}

// What stands at a path of the document; says what it should have been.
absl::Status WrongType(absl::string_view path, const Json& value, absl::string_view want) {
  return InvalidField(path, PrintableText(value.dump(-1, ' ', false, Json::error_handler_t::replace), 80), want);
}

absl::StatusOr<double> ReadDouble(absl::string_view path, const Json& value) {
  if (!value.is_number()) return WrongType(path, value, "a number");
  return value.get<double>();
}

// Also a string of digits, since 64-bit integers may travel as strings.
absl::StatusOr<int> ReadInt(absl::string_view path, const Json& value) {
  std::optional<std::int64_t> number;
  if (value.is_number_unsigned()) {
    const auto wide = value.get<std::uint64_t>();
    if (wide <= static_cast<std::uint64_t>(std::numeric_limits<int>::max())) number = static_cast<std::int64_t>(wide);
  } else if (value.is_number_integer()) {
    number = value.get<std::int64_t>();
  } else if (value.is_string()) {
    number = ParseInt64(value.get<std::string>());
  }
  if (!number || *number < std::numeric_limits<int>::min() || *number > std::numeric_limits<int>::max()) {
    return WrongType(path, value, "a whole number of 32 bits");
  }
  return static_cast<int>(*number);
}

template <typename T, typename Read>
absl::Status ReadList(absl::string_view path, const Json& value, const Read& read, std::vector<T>* list) {
  if (!value.is_array()) return WrongType(path, value, "a list");
  list->clear();
  for (std::size_t i = 0; i < value.size(); ++i) {
    const absl::StatusOr<T> item = read(absl::StrCat(path, "[", i, "]"), value[i]);
    if (!item.ok()) return item.status();
    list->push_back(*item);
  }
  return absl::OkStatus();
}

absl::Status ReadDelta(absl::string_view path, const Json& value, std::map<std::string, double>* delta) {
  if (!value.is_object()) return WrongType(path, value, "an object from series name or role to margin");
  delta->clear();
  for (const auto& [name, margin] : value.items()) {
    const absl::StatusOr<double> number = ReadDouble(absl::StrCat(path, ".", PrintableText(name, 256)), margin);
    if (!number.ok()) return number.status();
    (*delta)[name] = *number;
  }
  return absl::OkStatus();
}

absl::Status ReadKey(const std::string& key, absl::string_view path, const Json& value, Config* config) {
  const std::vector<std::pair<absl::string_view, std::vector<double>*>> levels = {
      {"a_sup", &config->a_sup}, {"a_eq", &config->a_eq}, {"a_ctl", &config->a_ctl}};
  for (const auto& [name, list] : levels) {
    if (key == name) return ReadList(path, value, ReadDouble, list);
  }
  const std::vector<std::pair<absl::string_view, double*>> numbers = {{"consist", &config->consist},
                                                                      {"ctl_floor", &config->ctl_floor},
                                                                      {"thr_quads_max", &config->thr_quads_max},
                                                                      {"thr_asym_p", &config->thr_asym_p}};
  for (const auto& [name, number] : numbers) {
    if (key != name) continue;
    const absl::StatusOr<double> read = ReadDouble(path, value);
    if (!read.ok()) return read.status();
    *number = *read;
    return absl::OkStatus();
  }
  if (key == "looks") return ReadList(path, value, ReadInt, &config->looks);
  if (key == "delta") return ReadDelta(path, value, &config->delta);
  return InvalidField(path, "an unknown key",
                      "one of looks, a_sup, a_eq, a_ctl, delta, consist, ctl_floor, thr_quads_max, thr_asym_p");
}

}  // namespace

OrderedJson NumberToJson(double value) {
  if (std::isfinite(value)) return value;
  return DoubleText(value);
}

OrderedJson ConfigToJson(const Config& config) {
  OrderedJson json = {{"looks", config.looks}, {"a_sup", config.a_sup}, {"a_eq", config.a_eq}, {"a_ctl", config.a_ctl}};
  json["delta"] = OrderedJson::object();
  for (const auto& [name, delta] : config.delta) json["delta"][name] = delta;
  json["consist"] = config.consist;
  json["ctl_floor"] = config.ctl_floor;
  json["thr_quads_max"] = config.thr_quads_max;
  json["thr_asym_p"] = config.thr_asym_p;
  return json;
}

absl::StatusOr<Config> ConfigFromJson(absl::string_view text) {
  const absl::StatusOr<Json> document = ParseStrictJson("config", text);
  if (!document.ok()) return document.status();
  if (!document->is_object()) return WrongType("config", *document, "an object");
  const bool is_wrapped = document->contains("config");
  const Json& object = is_wrapped ? document->at("config") : *document;
  if (!object.is_object()) return WrongType("config", object, "an object");
  Config config;
  for (const auto& [key, value] : object.items()) {
    const std::string path = absl::StrCat(is_wrapped ? "config." : "", PrintableText(key, 80));
    if (absl::Status status = ReadKey(key, path, value, &config); !status.ok()) return status;
  }
  if (absl::Status status = ValidateConfig(config); !status.ok()) return status;
  return config;
}

OrderedJson LookToJson(const Look& look) {
  OrderedJson json = {{"R", look.R}, {"series", OrderedJson::object()}};
  for (const SeriesLook& series : look.series) json["series"][series.series] = SeriesLookToJson(series);
  json["candidate"] = look.candidate.empty() ? OrderedJson() : OrderedJson(look.candidate);
  json["control_fail"] = look.control_fail;
  json["control_ok"] = look.control_ok;
  json["regressed"] = look.regressed;
  json["eps"] = NumberToJson(look.eps);
  return json;
}

OrderedJson OutcomeToJson(const Outcome& outcome) {
  OrderedJson json = {{"verdict", outcome.verdict}, {"reason", outcome.reason}, {"detail", outcome.detail}};
  if (outcome.rule == Rule::kMemory) {
    json["rule"] = RuleName(outcome.rule);
  } else {
    json["rule"] = static_cast<int>(outcome.rule);
  }
  if (outcome.stop_look) json["stop_look"] = *outcome.stop_look;
  json["looks"] = OrderedJson::array();
  for (const Look& look : outcome.looks) json["looks"].push_back(LookToJson(look));
  json["throttled_blocks"] = ArmsToJson(outcome.throttled_blocks);
  json["throttle_asym_p"] = NumberToJson(outcome.throttle_asym_p);
  json["quads_dropped"] = NumberToJson(outcome.quads_dropped);
  json["memory"] = std::string(MemoryName(outcome.memory));
  json["non_inferior"] = outcome.non_inferior;
  json["rounds_needed"] = outcome.rounds_needed.rounds;
  json["limiting_series"] = outcome.rounds_needed.limiting_series;
  return json;
}

OrderedJson SeriesToJson(const SeriesSummary& summary) {
  const SeriesLook& look = summary.look;
  OrderedJson json = {{"series", look.series}, {"role", std::string(RoleName(look.role))}, {"status", summary.status}};
  if (look.role != Role::kControl) json["delta"] = NumberToJson(look.delta);
  json["base_ms"] = NumberToJson(summary.base_ms);
  json["candidate_ms"] = NumberToJson(summary.candidate_ms);
  json["gain_pct"] = NumberToJson(PercentOf(look.L));
  json["gain_lo_pct"] = NumberToJson(PercentOf(look.sup_lo));
  json["gain_hi_pct"] = NumberToJson(PercentOf(look.sup_hi));
  json["L"] = NumberToJson(look.L);
  json["sup_lo"] = NumberToJson(look.sup_lo);
  json["sup_hi"] = NumberToJson(look.sup_hi);
  json["D"] = NumbersToJson(look.D);
  json["rounds"] = look.rounds;
  json["positive"] = look.pos;
  json["n"] = look.n;
  json["between_sd"] = NumberToJson(look.sd);
  json["within_sd"] = NumberToJson(look.within_sd);
  json["mean_ratio"] = NumberToJson(std::exp(look.meanratio_log));
  json["p95_ratio"] = NumberToJson(std::exp(look.p95_ratio_log));
  json["smallest_detectable"] = NumberToJson(look.smallest_detectable);
  json["p_loss"] = NumberToJson(look.p_loss);
  if (look.role != Role::kControl) json["p_holm"] = NumberToJson(look.p_holm);
  json["hodges_lehmann"] = NumberToJson(look.hodges_lehmann);
  json["quads"] = summary.quads;
  json["quads_dropped"] = summary.quads_dropped;
  json["throttled_blocks"] = ArmsToJson(summary.throttled_blocks);
  return json;
}

}  // namespace keval::verdict
