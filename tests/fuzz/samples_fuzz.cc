// A samples file, and the verdict that it gives. A config may come before it, ended by a NUL.
#include <optional>

#include "core/verdict/recompute.h"
#include "core/verdict/samples.h"
#include "tests/fuzz/fuzz_target.h"

using keval::fuzz::Require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  absl::string_view csv = keval::fuzz::AsText(data, size);
  std::optional<absl::string_view> config;
  if (const std::size_t end = csv.find('\0'); end != absl::string_view::npos) {
    config = csv.substr(0, end);
    csv.remove_prefix(end + 1);
  }
  const auto samples = keval::verdict::ParseSamples(csv);
  if (samples.ok()) {
    const std::string written = keval::verdict::FormatSamples(*samples);
    const auto again = keval::verdict::ParseSamples(written);
    Require(again.ok(), again.status().ToString());
    Require(keval::verdict::FormatSamples(*again) == written, "samples read back as they were");
  } else {
    keval::fuzz::RequireRefusal(samples.status());
  }
  const auto recomputed = keval::verdict::RecomputeVerdict(csv, config);
  if (recomputed.ok()) {
    Require(samples.ok(), "a verdict has samples");
    // Throws where a text isn't UTF-8.
    Require(!keval::verdict::RecomputedToJson(*recomputed).dump().empty(), "a verdict can be shown");
  } else {
    keval::fuzz::RequireRefusal(recomputed.status());
  }
  return 0;
}
