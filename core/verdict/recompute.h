// `keval verdict`: a verdict from the text of a samples file alone.
#ifndef KEVAL_CORE_VERDICT_RECOMPUTE_H_
#define KEVAL_CORE_VERDICT_RECOMPUTE_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/verdict/config.h"
#include "core/verdict/verdict.h"

namespace keval::verdict {

struct Recomputed {
  Outcome outcome;
  Config config;       // As used.
  std::string sha256;  // Of the samples file, hexadecimal.
  std::size_t rows = 0;
};

// `config_text` is what ConfigFromJson reads; without it the defaults. The memory rule counts as met, since the samples
// don't hold memory. The errors of ParseSamples, ConfigFromJson and Decide.
absl::StatusOr<Recomputed> RecomputeVerdict(absl::string_view csv_text, std::optional<absl::string_view> config_text);

// As above with a config that was put together elsewhere, e.g. from flags.
absl::StatusOr<Recomputed> RecomputeVerdict(absl::string_view csv_text, const Config& config);

// OutcomeToJson with `rows`, `sha256` and `config` behind it.
nlohmann::ordered_json RecomputedToJson(const Recomputed& recomputed);

}  // namespace keval::verdict

#endif  // KEVAL_CORE_VERDICT_RECOMPUTE_H_
