// Configurations and outcomes as JSON. Keys: docs/report_format.md; tests/cases/verdict/expected.json has examples.
// Non-finite numbers are the strings "nan", "inf", "-inf".
#ifndef KEVAL_CORE_VERDICT_JSON_H_
#define KEVAL_CORE_VERDICT_JSON_H_

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/verdict/config.h"
#include "core/verdict/summary.h"
#include "core/verdict/verdict.h"

namespace keval::verdict {

// A JSON number, or the string for a value that JSON has no number for.
nlohmann::ordered_json NumberToJson(double value);

nlohmann::ordered_json ConfigToJson(const Config& config);

// `text` is a config object, or a document with one under "config" (report.json); what it leaves out has its default.
// INVALID_ARGUMENT naming the key's path for an unknown key, a wrong type, a key given twice, or a value that
// ValidateConfig refuses.
absl::StatusOr<Config> ConfigFromJson(absl::string_view text);

nlohmann::ordered_json LookToJson(const Look& look);

// `stop_look` is absent where no look stopped.
nlohmann::ordered_json OutcomeToJson(const Outcome& outcome);

// One entry of a report's `series`; whoever writes the report adds what the samples don't hold.
nlohmann::ordered_json SeriesToJson(const SeriesSummary& summary);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_JSON_H_
