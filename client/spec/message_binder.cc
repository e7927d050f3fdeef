#include "client/spec/message_binder.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/number.h"
#include "base/suggestion.h"
#include "base/text.h"
#include "client/document/document.h"

namespace keval::spec {
namespace {

using document::ErrorAt;
using document::Kind;
using document::Node;
using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// What a value looks like in an error.
std::string Shown(const Node& node) {
  switch (node.kind) {
    case Kind::kNull:
      return "an empty value";
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a mapping";
    case Kind::kString:
      return absl::StrCat("\"", node.text, "\"");
    case Kind::kPlain:
    case Kind::kNumber:
    case Kind::kBoolean:
      return node.text;
  }
  return "";  // Unreachable: the switch names every enumerator.
}

std::vector<std::string> FieldNames(const Descriptor* descriptor) {
  std::vector<std::string> names;
  names.reserve(static_cast<std::size_t>(descriptor->field_count()));
  for (int i = 0; i < descriptor->field_count(); ++i) names.push_back(descriptor->field(i)->name());
  return names;
}

// "bfloat16" for DATA_TYPE_BFLOAT16: what follows the prefix that the zero value ends with _UNSPECIFIED after.
std::string ShortName(const EnumValueDescriptor* value) {
  const std::string& zero = value->type()->FindValueByNumber(0)->name();
  const std::size_t prefix = zero.size() - absl::string_view("UNSPECIFIED").size();
  return absl::AsciiStrToLower(value->name().substr(prefix));
}

std::string ChildPath(const std::string& path, absl::string_view key) {
  return absl::StrCat(path, path.empty() ? "" : ".", key);
}

// The text of a node that may stand for a whole number.
absl::string_view IntegerText(const Node& node) {
  const bool possible = node.kind == Kind::kPlain || node.kind == Kind::kNumber || node.kind == Kind::kString;
  return possible ? absl::string_view(node.text) : absl::string_view();
}

std::optional<double> NumberOf(const Node& node) {
  if (node.kind != Kind::kPlain && node.kind != Kind::kNumber) return std::nullopt;
  return ParseDouble(node.text);
}

}  // namespace

absl::Status MessageBinder::Refuse(const Node& node, const std::string& path, absl::string_view limit) const {
  return ErrorAt(source_, node.line, path, Shown(node), limit);
}

absl::Status MessageBinder::Bind(const Node& node, const std::string& path, Message* message) const {
  if (node.kind != Kind::kMap) return Refuse(node, path, "a mapping of fields");
  const Descriptor* const descriptor = message->GetDescriptor();
  for (const auto& [key, value] : node.entries) {
    const std::string child = ChildPath(path, key);
    const FieldDescriptor* const field = descriptor->FindFieldByName(key);
    if (field == nullptr) {
      const auto known = FieldNames(descriptor);
      return ErrorAt(source_, value.line, child, "an unknown field",
                     absl::StrCat("one of ", absl::StrJoin(known, ", "), Suggestion(key, known)));
    }
    if (auto status = BindField(value, child, field, message); !status.ok()) return status;
  }
  return check_(*message, node, path);
}

absl::Status MessageBinder::BindField(const Node& node, const std::string& path, const Field* field,
                                      Message* message) const {
  if (field->is_map()) return BindMap(node, path, field, message);
  if (!field->is_repeated()) return BindValue(node, path, field, message);
  if (node.kind != Kind::kList) return Refuse(node, path, "a list");
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const std::string child = absl::StrCat(path, "[", i, "]");
    if (auto status = BindValue(node.items[i], child, field, message); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status MessageBinder::BindMap(const Node& node, const std::string& path, const Field* field,
                                    Message* message) const {
  if (node.kind != Kind::kMap) return Refuse(node, path, "a mapping");
  for (const auto& [key, value] : node.entries) {
    const std::string child = ChildPath(path, key);
    if (!IsValidUtf8(key)) return ErrorAt(source_, value.line, child, "the key", "UTF-8");
    Message* const entry = message->GetReflection()->AddMessage(message, field);
    const Descriptor* const descriptor = entry->GetDescriptor();
    entry->GetReflection()->SetString(entry, descriptor->map_key(), key);
    if (auto status = BindValue(value, child, descriptor->map_value(), entry); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status MessageBinder::BindValue(const Node& node, const std::string& path, const Field* field,
                                      Message* message) const {
  const auto* const reflection = message->GetReflection();
  const bool adds = field->is_repeated();
  switch (field->cpp_type()) {
    case Field::CPPTYPE_STRING: {
      if (node.kind != Kind::kPlain && node.kind != Kind::kString) return Refuse(node, path, "text");
      if (!IsValidUtf8(node.text)) return Refuse(node, path, "UTF-8");
      adds ? reflection->AddString(message, field, node.text) : reflection->SetString(message, field, node.text);
      return absl::OkStatus();
    }
    case Field::CPPTYPE_BOOL: {
      const bool literal = node.kind == Kind::kPlain || node.kind == Kind::kBoolean;
      if (!literal || (node.text != "true" && node.text != "false")) return Refuse(node, path, "true or false");
      reflection->SetBool(message, field, node.text == "true");
      return absl::OkStatus();
    }
    case Field::CPPTYPE_DOUBLE: {
      const auto number = NumberOf(node);
      if (!number) return Refuse(node, path, "a number such as 0.01 or 1e-2");
      adds ? reflection->AddDouble(message, field, *number) : reflection->SetDouble(message, field, *number);
      return absl::OkStatus();
    }
    case Field::CPPTYPE_INT32: {
      const auto number = ParseInt64(IntegerText(node));
      const bool fits = number && *number >= std::numeric_limits<std::int32_t>::min() &&
                        *number <= std::numeric_limits<std::int32_t>::max();
      if (!fits) return Refuse(node, path, "a whole number in [-2^31, 2^31)");
      const auto narrow = static_cast<std::int32_t>(*number);
      adds ? reflection->AddInt32(message, field, narrow) : reflection->SetInt32(message, field, narrow);
      return absl::OkStatus();
    }
    case Field::CPPTYPE_INT64: {
      const auto number = ParseInt64(IntegerText(node));
      if (!number) return Refuse(node, path, "a whole number in [-2^63, 2^63)");
      adds ? reflection->AddInt64(message, field, *number) : reflection->SetInt64(message, field, *number);
      return absl::OkStatus();
    }
    case Field::CPPTYPE_UINT64: {
      const auto number = ParseUint64(IntegerText(node));
      if (!number) return Refuse(node, path, "a whole number in [0, 2^64)");
      reflection->SetUInt64(message, field, *number);
      return absl::OkStatus();
    }
    case Field::CPPTYPE_ENUM:
      return BindEnum(node, path, field, message);
    case Field::CPPTYPE_MESSAGE:
      return Bind(node, path,
                  adds ? reflection->AddMessage(message, field) : reflection->MutableMessage(message, field));
    default:
      return ErrorAt(source_, node.line, path, "this field", "set by the server alone");
  }
}

absl::Status MessageBinder::BindEnum(const Node& node, const std::string& path, const Field* field,
                                     Message* message) const {
  const EnumDescriptor* const type = field->enum_type();
  std::vector<std::string> names;
  for (int i = 0; i < type->value_count(); ++i) {
    const EnumValueDescriptor* const value = type->value(i);
    if (value->number() == 0) continue;
    names.push_back(ShortName(value));
    const bool text = node.kind == Kind::kPlain || node.kind == Kind::kString;
    if (text && (node.text == names.back() || node.text == value->name())) {
      message->GetReflection()->SetEnum(message, field, value);
      return absl::OkStatus();
    }
  }
  return Refuse(node, path, absl::StrCat("one of ", absl::StrJoin(names, ", "), Suggestion(node.text, names)));
}

}  // namespace keval::spec
