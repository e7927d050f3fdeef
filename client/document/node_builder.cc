#include "client/document/node_builder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/text.h"

namespace keval::document {

absl::Status ErrorAt(absl::string_view source, int line, absl::string_view path, absl::string_view value,
                     absl::string_view limit) {
  constexpr std::size_t kMaxShown = 256;
  const std::string field = PrintableText(path, kMaxShown);
  const std::string shown = PrintableText(value, kMaxShown);
  const std::string place = absl::StrCat(PrintableText(source, kMaxShown), ": line ", line, ": ");
  return WithField(
      absl::InvalidArgumentError(absl::StrCat(place, field, field.empty() ? "" : ": ", shown, " must be ", limit)),
      {field, shown, std::string(limit)});
}

std::string NodeBuilder::Path() const {
  std::string path;
  for (const Open& open : open_) {
    if (open.node.kind == Kind::kList) {
      absl::StrAppend(&path, "[", open.node.items.size(), "]");
    } else if (open.has_key) {
      absl::StrAppend(&path, path.empty() ? "" : ".", open.key);
    }
  }
  return path;
}

bool NodeBuilder::Fail(int line, absl::string_view value, absl::string_view limit) {
  if (status_.ok()) status_ = ErrorAt(source_, line, Path(), value, limit);
  return false;
}

bool NodeBuilder::Key(std::string text, int line) {
  Open& map = open_.back();
  if (map.keys.size() >= limits_.max_entries) {
    return Fail(line, "the mapping", absl::StrCat("one of at most ", limits_.max_entries, " keys"));
  }
  map.key = text;
  map.has_key = true;
  if (!map.keys.insert(std::move(text)).second) return Fail(line, "a key given twice", "given once");
  return true;
}

bool NodeBuilder::Scalar(Kind kind, std::string text, int line) {
  Node node;
  node.kind = kind;
  node.line = line;
  node.text = std::move(text);
  return Add(std::move(node));
}

bool NodeBuilder::Begin(Kind kind, int line) {
  if (ExpectsKey()) return Fail(line, "a key", "text");
  if (open_.size() >= limits_.max_depth) {
    return Fail(line, "what is here", absl::StrCat("nested at most ", limits_.max_depth, " deep"));
  }
  Open open;
  open.node.kind = kind;
  open.node.line = line;
  open_.push_back(std::move(open));
  return true;
}

bool NodeBuilder::End() {
  Node node = std::move(open_.back().node);
  open_.pop_back();
  return Add(std::move(node));
}

bool NodeBuilder::Add(Node node) {
  if (open_.empty()) {
    root_ = std::move(node);
    return true;
  }
  Open& parent = open_.back();
  if (parent.node.kind == Kind::kList) {
    if (parent.node.items.size() >= limits_.max_entries) {
      const int line = node.line;
      return Fail(line, "the list", absl::StrCat("one of at most ", limits_.max_entries, " entries"));
    }
    parent.node.items.push_back(std::move(node));
    return true;
  }
  parent.node.entries.push_back({std::move(parent.key), std::move(node)});
  parent.has_key = false;
  return true;
}

}  // namespace keval::document
