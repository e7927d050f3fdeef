// A YAML or JSON document as a tree of texts with line numbers: nothing is a number or a yes/no yet, since who asks
// decides that. Duplicate keys, aliases, tags and sizes are already dealt with by the parsers (document.h).
#ifndef KEVAL_CLIENT_DOCUMENT_NODE_H_
#define KEVAL_CLIENT_DOCUMENT_NODE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace keval::document {

enum class Kind : std::uint8_t {
  kNull,
  kPlain,    // A YAML scalar without quotes: text, number or yes/no, as the reader needs.
  kString,   // Quoted, a YAML block scalar, or a JSON string.
  kNumber,   // A JSON number, as written where it matters (integers keep all digits).
  kBoolean,  // JSON's true and false.
  kList,
  kMap,
};

struct Node {
  struct Entry;

  Kind kind = Kind::kNull;
  int line = 0;  // From 1.
  std::string text;
  std::vector<Node> items;     // kList
  std::vector<Entry> entries;  // kMap, in the order of the file.

  // The entry of that key, or null.
  const Node* Find(absl::string_view key) const;
};

struct Node::Entry {
  std::string key;
  Node value;
};

// Not in the class, where an entry isn't complete yet.
inline const Node* Node::Find(absl::string_view key) const {
  for (const Entry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

}  // namespace keval::document

#endif  // KEVAL_CLIENT_DOCUMENT_NODE_H_
