// Builds a document::Node from the events of a parser.
#ifndef KEVAL_CLIENT_DOCUMENT_NODE_BUILDER_H_
#define KEVAL_CLIENT_DOCUMENT_NODE_BUILDER_H_

#include <string>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "client/document/document.h"
#include "client/document/node.h"

namespace keval::document {

// Each function returns false at the first error, which status() then holds; the parser must stop. Not thread-safe.
class NodeBuilder {
 public:
  NodeBuilder(absl::string_view source, const Limits& limits) : source_(source), limits_(limits) {}

  bool Key(std::string text, int line);
  bool Scalar(Kind kind, std::string text, int line);
  bool Begin(Kind kind, int line);  // kList or kMap.
  bool End();
  // An error of the parser's own at the place reached.
  bool Fail(int line, absl::string_view value, absl::string_view limit);

  // Whether the next scalar is the key of a mapping (YAML's events don't tell).
  bool ExpectsKey() const { return !open_.empty() && open_.back().node.kind == Kind::kMap && !open_.back().has_key; }
  const absl::Status& status() const { return status_; }
  Node TakeRoot() { return std::move(root_); }

 private:
  struct Open {
    Node node;
    std::string key;  // Of the entry being read.
    bool has_key = false;
    std::unordered_set<std::string> keys;
  };
  std::string Path() const;
  bool Add(Node node);

  const std::string source_;
  const Limits limits_;
  std::vector<Open> open_;
  Node root_;
  absl::Status status_;
};

}  // namespace keval::document

#endif  // KEVAL_CLIENT_DOCUMENT_NODE_BUILDER_H_
