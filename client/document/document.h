// Strict parsers of YAML and JSON into document::Node.
#ifndef KEVAL_CLIENT_DOCUMENT_DOCUMENT_H_
#define KEVAL_CLIENT_DOCUMENT_DOCUMENT_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/document/node.h"

namespace keval::document {

struct Limits {
  std::size_t max_depth = 16;
  std::size_t max_entries = 1000;  // Of one list or mapping.
};

// INVALID_ARGUMENT "SOURCE: line LINE: PATH: VALUE must be LIMIT"; its field is the path ("primaries[2].vocab_size").
// An empty path is left out of the message.
absl::Status ErrorAt(absl::string_view source, int line, absl::string_view path, absl::string_view value,
                     absl::string_view limit);

// One document. INVALID_ARGUMENT naming line and path: bad syntax, text that isn't UTF-8, a duplicate key, a key that
// is no text, more than `limits`; in YAML also aliases, anchors, tags and a second document. Reading stops at the first
// error, so an oversized list costs no more than its first max_entries. `source` names the file in errors.
absl::StatusOr<Node> ParseYaml(absl::string_view text, absl::string_view source, const Limits& limits = {});
absl::StatusOr<Node> ParseJson(absl::string_view text, absl::string_view source, const Limits& limits = {});

}  // namespace keval::document

#endif  // KEVAL_CLIENT_DOCUMENT_DOCUMENT_H_
