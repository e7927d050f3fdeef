// A job spec as YAML and as JSON, then as the server takes it.
#include "base/field_error.h"
#include "client/spec/spec.h"
#include "server/job_spec.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/job_fixtures.h"

using keval::fuzz::Require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const keval::server::SpecContext context = keval::testing::TestContext();
  for (const auto format : {keval::spec::Format::kYaml, keval::spec::Format::kJson}) {
    const auto spec = keval::spec::ParseSpec(keval::fuzz::AsText(data, size), format, "spec");
    if (!spec.ok()) {
      keval::fuzz::RequireRefusal(spec.status());
      Require(keval::GetFieldViolation(spec.status()).has_value(), "a refusal names its field");
      continue;
    }
    Require(spec->primaries_size() > 0, "a spec has a primary");
    const auto normalized = keval::server::NormalizeSpec(*spec, context);
    if (!normalized.ok()) {
      keval::fuzz::RequireRefusal(normalized.status());
      continue;
    }
    // What has been filled in stays as it is.
    const auto again = keval::server::NormalizeSpec(*normalized, context);
    Require(again.ok(), again.status().ToString());
    Require(keval::server::SpecDigest(*again) == keval::server::SpecDigest(*normalized), "normalizing is idempotent");
  }
  return 0;
}
