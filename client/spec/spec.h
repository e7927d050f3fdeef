// Benchmark specs as people write them, in YAML or JSON, to keval.v1.BenchmarkSpec.
#ifndef KEVAL_CLIENT_SPEC_SPEC_H_
#define KEVAL_CLIENT_SPEC_SPEC_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "keval/v1/benchmark.pb.h"

namespace keval::spec {

enum class Format : std::uint8_t { kYaml, kJson };

inline constexpr std::int64_t kMaxSpecBytes = std::int64_t{4} << 20;

// The spec as written: what it leaves out stays unset, the server fills the defaults in. INVALID_ARGUMENT "SOURCE: line
// LINE: PATH: …" whose field is the path ("primaries[2].vocab_size"), for bad syntax, an unknown field (with the likely
// one), a wrong type, a duplicate key, no primaries, a shape that can't be (not positive, or beyond 2^63 bytes), a
// margin outside (0, 0.5], or lists of more than 1000 entries.
//
// Numbers are decimal, as base/number.h reads them: "1e-2" is 0.01, "0010" is ten. Text fields take any scalar but an
// empty one as it stands (an unquoted no or 1e3 included); a yes/no field takes true and false alone. Integers may be
// quoted. Enum values are lower-case and short ("bfloat16") or as in the proto.
absl::StatusOr<v1::BenchmarkSpec> ParseSpec(absl::string_view text, Format format, absl::string_view source);

// Reads `path`, as YAML or JSON by its ending (.yaml, .yml, .json), else as JSON where it begins with '{'.
absl::StatusOr<v1::BenchmarkSpec> ReadSpec(const std::string& path);

}  // namespace keval::spec

#endif  // KEVAL_CLIENT_SPEC_SPEC_H_
