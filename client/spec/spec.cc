#include "client/spec/spec.h"

#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/number.h"
#include "base/shape.h"
#include "client/document/document.h"
#include "client/spec/message_binder.h"
#include "proto/data_type.h"

namespace keval::spec {
namespace {

using document::ErrorAt;
using document::Node;

constexpr std::size_t kMaxDisplayNameBytes = 256;
constexpr double kMaxMargin = 0.5;

// The line of a field, or of the message where the file leaves it out.
int LineOf(const Node& node, absl::string_view field) {
  const Node* const found = node.Find(field);
  return found == nullptr ? node.line : found->line;
}

// Of an unspecified type: the default's.
std::int64_t ElementBytes(v1::DataType type) { return DTypeSize(ToDType(type).value_or(DType::kFloat32)); }

class SpecChecks {
 public:
  explicit SpecChecks(absl::string_view source) : source_(source) {}

  absl::Status operator()(const google::protobuf::Message& message, const Node& node, const std::string& path) const {
    if (const auto* shape = dynamic_cast<const v1::Shape*>(&message)) return CheckShape(*shape, node, path);
    if (const auto* spec = dynamic_cast<const v1::BenchmarkSpec*>(&message)) return CheckSpec(*spec, node);
    return absl::OkStatus();
  }

 private:
  absl::Status CheckShape(const v1::Shape& shape, const Node& node, const std::string& path) const {
    struct Named {
      absl::string_view name;
      std::int64_t value;
    };
    const std::array<Named, 3> sizes = {
        {{"num_tokens", shape.num_tokens()}, {"hidden_size", shape.hidden_size()}, {"vocab_size", shape.vocab_size()}}};
    for (const auto& [name, value] : sizes) {
      if (value >= 1) continue;
      const bool given = node.Find(name) != nullptr;
      return ErrorAt(source_, LineOf(node, name), absl::StrCat(path, ".", name),
                     given ? absl::StrCat(value) : std::string("what is left out"), "at least 1");
    }
    if (shape.chunk_elems() < 0) {
      return ErrorAt(source_, LineOf(node, "chunk_elems"), absl::StrCat(path, ".chunk_elems"),
                     absl::StrCat(shape.chunk_elems()), "at least 1 (or 0, the default)");
    }
    // hidden, weight and the full logits, each pair of sizes once.
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const Named& a = sizes[i];
      const Named& b = sizes[(i + 1) % sizes.size()];
      const auto elements = CheckedMultiply(a.value, b.value);
      if (!elements || !CheckedMultiply(*elements, ElementBytes(shape.dtype()))) {
        const Named& larger = a.value > b.value ? a : b;
        return ErrorAt(source_, LineOf(node, larger.name), absl::StrCat(path, ".", larger.name),
                       absl::StrCat(larger.value),
                       absl::StrCat("such that ", a.name, " x ", b.name, " has fewer than 2^63 bytes"));
      }
    }
    return CheckDisplayName(shape.display_name(), node, path + ".");
  }

  absl::Status CheckSpec(const v1::BenchmarkSpec& spec, const Node& node) const {
    if (spec.primaries().empty()) {
      return ErrorAt(source_, LineOf(node, "primaries"), "primaries", "what is left out", "at least one shape");
    }
    for (const auto& [name, margin] : spec.margins()) {
      if (margin > 0 && margin <= kMaxMargin) continue;
      const Node* const margins = node.Find("margins");
      return ErrorAt(source_, LineOf(*margins, name), absl::StrCat("margins.", name), DoubleText(margin),
                     "in (0, 0.5] (ln units: 0.01 is about 1 %)");
    }
    return CheckDisplayName(spec.display_name(), node, "");
  }

  absl::Status CheckDisplayName(const std::string& name, const Node& node, const std::string& prefix) const {
    if (name.size() <= kMaxDisplayNameBytes) return absl::OkStatus();
    return ErrorAt(source_, LineOf(node, "display_name"), prefix + "display_name", name,
                   absl::StrCat("at most ", kMaxDisplayNameBytes, " bytes long"));
  }

  std::string source_;
};

bool LooksLikeJson(const std::string& path, absl::string_view text) {
  if (absl::EndsWith(path, ".json")) return true;
  if (absl::EndsWith(path, ".yaml") || absl::EndsWith(path, ".yml")) return false;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != absl::string_view::npos && text[first] == '{';
}

}  // namespace

absl::StatusOr<v1::BenchmarkSpec> ParseSpec(absl::string_view text, Format format, absl::string_view source) {
  const auto root = format == Format::kJson ? document::ParseJson(text, source) : document::ParseYaml(text, source);
  if (!root.ok()) return root.status();
  v1::BenchmarkSpec spec;
  const MessageBinder binder(source, SpecChecks(source));
  if (auto status = binder.Bind(*root, "", &spec); !status.ok()) return status;
  return spec;
}

absl::StatusOr<v1::BenchmarkSpec> ReadSpec(const std::string& path) {
  const auto text = ReadWholeFile(path, kMaxSpecBytes);
  if (!text.ok()) return text.status();
  return ParseSpec(*text, LooksLikeJson(path, *text) ? Format::kJson : Format::kYaml, path);
}

}  // namespace keval::spec
