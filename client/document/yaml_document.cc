#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/node/node.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "client/document/document.h"
#include "client/document/node_builder.h"

namespace keval::document {
namespace {

// Leaves yaml-cpp's parser at the first error; caught in ParseYaml, the builder holds the status.
struct Stop {};

int Line(const YAML::Mark& mark) { return mark.line + 1; }

class Handler : public YAML::EventHandler {
 public:
  explicit Handler(NodeBuilder* builder) : builder_(builder) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (std::exchange(started_, true)) Check(builder_->Fail(Line(mark), "a second document", "left out"));
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    RefuseAnchor(mark, anchor);
    if (builder_->ExpectsKey()) Check(builder_->Fail(Line(mark), "an empty key", "text"));
    Check(builder_->Scalar(Kind::kNull, "", Line(mark)));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Check(builder_->Fail(Line(mark), "an alias (*name)", "written out: anchors and aliases are not read"));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    if (builder_->ExpectsKey()) {
      Check(builder_->Key(value, Line(mark)));
    } else {
      Check(builder_->Scalar(tag == "?" ? Kind::kPlain : Kind::kString, value, Line(mark)));
    }
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    Check(builder_->Begin(Kind::kList, Line(mark)));
  }
  void OnSequenceEnd() override { Check(builder_->End()); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    Check(builder_->Begin(Kind::kMap, Line(mark)));
  }
  void OnMapEnd() override { Check(builder_->End()); }

 private:
  static void Check(bool ok) {
    if (!ok) throw Stop();
  }
  void RefuseAnchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) Check(builder_->Fail(Line(mark), "an anchor (&name)", "left out: anchors are not read"));
  }
  void RefuseTag(const YAML::Mark& mark, const std::string& tag) {
    // "?" marks a plain scalar, "!" a quoted one; collections have none or "?".
    if (!tag.empty() && tag != "?" && tag != "!") {
      Check(builder_->Fail(Line(mark), "tag " + tag, "left out: tags are not read"));
    }
  }

  NodeBuilder* const builder_;
  bool started_ = false;
};

int LineOfInvalidUtf8(absl::string_view text) {
  int line = 1;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (!IsValidUtf8(text.substr(0, end)) || end == absl::string_view::npos) return line;
    text.remove_prefix(end + 1);
    ++line;
  }
  return line;
}

}  // namespace

absl::StatusOr<Node> ParseYaml(absl::string_view text, absl::string_view source, const Limits& limits) {
  // yaml-cpp would put U+FFFD where the text isn't UTF-8, and takes NUL for the end.
  if (!IsValidUtf8(text)) return ErrorAt(source, LineOfInvalidUtf8(text), "", "the text", "UTF-8");
  if (const std::size_t nul = text.find('\0'); nul != absl::string_view::npos) {
    const auto newlines = std::count(text.begin(), text.begin() + nul, '\n');
    return ErrorAt(source, static_cast<int>(newlines) + 1, "", "a NUL byte", "left out");
  }
  NodeBuilder builder(source, limits);
  Handler handler(&builder);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(handler)) return ErrorAt(source, 1, "", "an empty file", "a document");
    parser.HandleNextDocument(handler);  // Stops at the start of a second one.
  } catch (const Stop&) {
    return builder.status();
  } catch (const YAML::Exception& error) {
    builder.Fail(error.mark.is_null() ? 1 : Line(error.mark), absl::StrCat("the text (", error.msg, ")"), "valid YAML");
    return builder.status();
  }
  return builder.TakeRoot();
}

}  // namespace keval::document
