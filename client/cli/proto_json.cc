#include "client/cli/proto_json.h"

#include <google/protobuf/descriptor.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "core/verdict/json.h"

namespace keval::cli {
namespace {

using Json = nlohmann::ordered_json;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Element `index` of a repeated field, or the value of a singular one where it is negative.
Json ValueToJson(const Message& message, const FieldDescriptor* field, int index) {
  const Reflection* const reflection = message.GetReflection();
  const bool repeated = index >= 0;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return repeated ? reflection->GetRepeatedInt32(message, field, index) : reflection->GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return repeated ? reflection->GetRepeatedInt64(message, field, index) : reflection->GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return repeated ? reflection->GetRepeatedUInt32(message, field, index) : reflection->GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return repeated ? reflection->GetRepeatedUInt64(message, field, index) : reflection->GetUInt64(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return verdict::NumberToJson(repeated ? reflection->GetRepeatedDouble(message, field, index)
                                            : reflection->GetDouble(message, field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return verdict::NumberToJson(static_cast<double>(repeated ? reflection->GetRepeatedFloat(message, field, index)
                                                                : reflection->GetFloat(message, field)));
    case FieldDescriptor::CPPTYPE_BOOL:
      return repeated ? reflection->GetRepeatedBool(message, field, index) : reflection->GetBool(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumText(field->enum_type(), repeated ? reflection->GetRepeatedEnumValue(message, field, index)
                                                   : reflection->GetEnumValue(message, field));
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text =
          repeated ? reflection->GetRepeatedString(message, field, index) : reflection->GetString(message, field);
      return field->type() == FieldDescriptor::TYPE_BYTES ? absl::BytesToHexString(text) : text;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ProtoToJson(repeated ? reflection->GetRepeatedMessage(message, field, index)
                                  : reflection->GetMessage(message, field));
  }
  return nullptr;  // Unreachable: the switch names every enumerator.
}

Json MapToJson(const Message& message, const FieldDescriptor* field) {
  const Reflection* const reflection = message.GetReflection();
  std::map<std::string, Json> sorted;  // A map field has no order of its own.
  for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
    const Message& entry = reflection->GetRepeatedMessage(message, field, i);
    const auto* const descriptor = entry.GetDescriptor();
    const Json key = ValueToJson(entry, descriptor->map_key(), -1);
    sorted[key.is_string() ? key.get<std::string>() : key.dump()] = ValueToJson(entry, descriptor->map_value(), -1);
  }
  Json object = Json::object();
  for (auto& [key, value] : sorted) object[key] = std::move(value);
  return object;
}

}  // namespace

std::string EnumText(const google::protobuf::EnumDescriptor* type, int number) {
  const auto* const value = type->FindValueByNumber(number);
  if (value == nullptr) return absl::StrCat(number);
  const std::string& zero = type->FindValueByNumber(0)->name();
  constexpr absl::string_view kUnspecified = "UNSPECIFIED";
  if (!absl::EndsWith(zero, kUnspecified)) return value->name();
  const std::string prefix = zero.substr(0, zero.size() - kUnspecified.size());
  if (!absl::StartsWith(value->name(), prefix)) return value->name();
  return absl::AsciiStrToLower(value->name().substr(prefix.size()));
}

Json ProtoToJson(const Message& message) {
  const auto* const descriptor = message.GetDescriptor();
  const Reflection* const reflection = message.GetReflection();
  Json object = Json::object();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* const field = descriptor->field(i);
    if (field->is_map()) {
      object[field->name()] = MapToJson(message, field);
    } else if (field->is_repeated()) {
      Json list = Json::array();
      for (int j = 0; j < reflection->FieldSize(message, field); ++j) list.push_back(ValueToJson(message, field, j));
      object[field->name()] = std::move(list);
    } else if (!field->has_presence() || reflection->HasField(message, field)) {
      object[field->name()] = ValueToJson(message, field, -1);
    }
  }
  return object;
}

}  // namespace keval::cli
