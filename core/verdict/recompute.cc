#include "core/verdict/recompute.h"

#include <utility>
#include <vector>

#include "base/sha256.h"
#include "core/verdict/json.h"
#include "core/verdict/samples.h"

namespace keval::verdict {

absl::StatusOr<Recomputed> RecomputeVerdict(absl::string_view csv_text, std::optional<absl::string_view> config_text) {
  if (!config_text) return RecomputeVerdict(csv_text, Config());
  const absl::StatusOr<Config> config = ConfigFromJson(*config_text);
  if (!config.ok()) return config.status();
  return RecomputeVerdict(csv_text, *config);
}

absl::StatusOr<Recomputed> RecomputeVerdict(absl::string_view csv_text, const Config& config) {
  const absl::StatusOr<std::vector<Sample>> samples = ParseSamples(csv_text);
  if (!samples.ok()) return samples.status();
  absl::StatusOr<Outcome> outcome = Decide(*samples, config);
  if (!outcome.ok()) return outcome.status();
  return Recomputed{*std::move(outcome), config, Sha256Hex(csv_text), samples->size()};
}

nlohmann::ordered_json RecomputedToJson(const Recomputed& recomputed) {
  nlohmann::ordered_json json = OutcomeToJson(recomputed.outcome);
  json["rows"] = recomputed.rows;
  json["sha256"] = recomputed.sha256;
  json["config"] = ConfigToJson(recomputed.config);
  return json;
}

}  // namespace keval::verdict
