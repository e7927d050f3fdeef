#include "client/tensor_file/safetensors.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/file.h"
#include "base/number.h"
#include "base/shape.h"
#include "base/text.h"
#include "client/document/document.h"
#include "client/tensor_file/input_file.h"

namespace keval::tensor_file {
namespace {

using document::Kind;
using document::Node;

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMaxHeaderBytes = 100'000'000;  // The format's own limit.
constexpr std::int64_t kHeaderAlignment = 8;
constexpr document::Limits kHeaderLimits = {.max_depth = 4, .max_entries = 100'000};

constexpr std::array<std::pair<DType, absl::string_view>, 6> kDTypes = {{{DType::kFloat32, "F32"},
                                                                         {DType::kFloat64, "F64"},
                                                                         {DType::kBFloat16, "BF16"},
                                                                         {DType::kFloat16, "F16"},
                                                                         {DType::kInt32, "I32"},
                                                                         {DType::kInt64, "I64"}}};

absl::string_view FileDTypeName(DType dtype) {
  for (const auto& [value, name] : kDTypes) {
    if (value == dtype) return name;
  }
  return "";
}

absl::Status Refuse(absl::string_view source, absl::string_view field, absl::string_view value,
                    absl::string_view limit) {
  const std::string name = PrintableText(field, 256);
  const std::string shown = PrintableText(value, 256);
  return WithField(
      absl::InvalidArgumentError(absl::StrCat(PrintableText(source), ": ", name, ": ", shown, " must be ", limit)),
      {name, shown, std::string(limit)});
}

// What a value of the header looks like in an error; the whole of a long list would be cut there anyway.
std::string Shown(const Node* node) {
  constexpr std::size_t kEnough = 256;
  if (node == nullptr) return "left out";
  switch (node->kind) {
    case Kind::kMap:
      return "an object";
    case Kind::kNull:
      return "null";
    case Kind::kString:
      return absl::StrCat("\"", node->text, "\"");
    case Kind::kList: {
      std::string text = "[";
      for (const Node& item : node->items) {
        absl::StrAppend(&text, text.size() == 1 ? "" : ", ", Shown(&item));
        if (text.size() > kEnough) return text;
      }
      return text + "]";
    }
    case Kind::kPlain:
    case Kind::kNumber:
    case Kind::kBoolean:
      return node->text;
  }
  return "";  // Unreachable: the switch names every enumerator.
}

// A list of non-negative whole numbers.
std::optional<std::vector<std::int64_t>> WholeNumbers(const Node* node) {
  if (node == nullptr || node->kind != Kind::kList) return std::nullopt;
  std::vector<std::int64_t> numbers;
  for (const Node& item : node->items) {
    const auto number = item.kind == Kind::kNumber ? ParseInt64(item.text) : std::nullopt;
    if (!number || *number < 0) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

absl::Status CheckMetadata(const Node& node, absl::string_view source) {
  if (node.kind != Kind::kMap) return Refuse(source, "__metadata__", Shown(&node), "an object of texts");
  for (const auto& [key, value] : node.entries) {
    if (value.kind != Kind::kString) {
      return Refuse(source, "__metadata__", absl::StrCat(key, " ", Shown(&value)), "a text");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Entry> ParseEntry(const std::string& name, const Node& node, std::int64_t payload_bytes,
                                 absl::string_view source) {
  if (node.kind != Kind::kMap) return Refuse(source, name, Shown(&node), "an object");
  for (const auto& [key, value] : node.entries) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return Refuse(source, name, key, "one of dtype, shape, data_offsets");
    }
  }
  Entry entry;
  entry.name = name;
  const Node* const dtype = node.Find("dtype");
  if (dtype == nullptr || dtype->kind != Kind::kString) {
    return Refuse(source, name, absl::StrCat("dtype ", Shown(dtype)), "a text");
  }
  const auto known =
      std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& d) { return d.second == dtype->text; });
  if (known == kDTypes.end()) {
    return Refuse(source, name, absl::StrCat("dtype ", dtype->text), "F32, F64, BF16, F16, I32 or I64");
  }
  entry.dtype = known->first;
  const Node* const shape_node = node.Find("shape");
  auto shape = WholeNumbers(shape_node);
  if (!shape) {
    return Refuse(source, name, absl::StrCat("shape ", Shown(shape_node)), "a list of whole numbers in [0, 2^63)");
  }
  entry.shape = *std::move(shape);
  const auto bytes = NumBytes(name, {entry.dtype, entry.shape});
  if (!bytes.ok()) {
    const auto violation = GetFieldViolation(bytes.status()).value_or(FieldViolation());
    return Refuse(source, name, violation.value, violation.limit);
  }
  const Node* const offsets_node = node.Find("data_offsets");
  const auto offsets = WholeNumbers(offsets_node);
  if (!offsets || offsets->size() != 2) {
    return Refuse(source, name, absl::StrCat("data_offsets ", Shown(offsets_node)), "two whole numbers in [0, 2^63)");
  }
  entry.begin = (*offsets)[0];
  entry.end = (*offsets)[1];
  const std::string range = absl::StrCat("data_offsets ", ShapeText(*offsets));
  if (entry.begin > entry.end || entry.end > payload_bytes) {
    return Refuse(source, name, range, absl::StrCat("ascending and within the ", payload_bytes, " bytes of data"));
  }
  if (entry.end - entry.begin != *bytes) {
    return Refuse(source, name, range,
                  absl::StrCat("the ", *bytes, " bytes of shape ", ShapeText(entry.shape), " and dtype ", dtype->text));
  }
  return entry;
}

}  // namespace

absl::StatusOr<std::vector<Entry>> ParseSafetensorsHeader(absl::string_view json, std::int64_t payload_bytes,
                                                          absl::string_view source) {
  if (json.empty() || json.front() != '{') return Refuse(source, "header", "its first character", "{");
  const auto root = document::ParseJson(json, source, kHeaderLimits);
  if (!root.ok()) return root.status();
  std::vector<Entry> entries;
  for (const auto& [name, node] : root->entries) {
    if (name == "__metadata__") {
      if (auto status = CheckMetadata(node, source); !status.ok()) return status;
      continue;
    }
    auto entry = ParseEntry(name, node, payload_bytes, source);
    if (!entry.ok()) return entry.status();
    entries.push_back(*std::move(entry));
  }
  // An empty tensor lies before one with bytes that begins at the same place.
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::int64_t covered = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != covered) {
      const bool overlaps = entry.begin < covered;
      return Refuse(
          source, entry.name, absl::StrCat("data_offsets begin at ", entry.begin, ", which"),
          absl::StrCat(covered, overlaps ? ": its bytes overlap another tensor's" : ": bytes before it are unused"));
    }
    covered = entry.end;
  }
  if (covered != payload_bytes) {
    return Refuse(source, "data", absl::StrCat(payload_bytes, " bytes"),
                  absl::StrCat(covered, " bytes, as the header says: bytes trail the last tensor"));
  }
  return entries;
}

absl::StatusOr<std::vector<NamedTensor>> ReadSafetensors(const std::string& path) {
  const auto file = InputFile::Open(path);
  if (!file.ok()) return file.status();
  std::array<unsigned char, kLengthBytes> length_bytes = {};
  if (file->size() < kLengthBytes) {
    return Refuse(path, "header length", absl::StrCat("a file of ", file->size(), " bytes"), "8 bytes or more");
  }
  if (auto status = file->ReadAt(0, length_bytes.data(), length_bytes.size()); !status.ok()) return status;
  std::uint64_t declared = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) declared = (declared << 8) | length_bytes[i];
  const std::int64_t limit = std::min(kMaxHeaderBytes, file->size() - kLengthBytes);
  if (declared > static_cast<std::uint64_t>(limit)) {
    return Refuse(path, "header length", absl::StrCat(declared), absl::StrCat("at most ", limit));
  }
  std::string json(declared, '\0');
  if (auto status = file->ReadAt(kLengthBytes, json.data(), json.size()); !status.ok()) return status;
  const std::int64_t data_begin = kLengthBytes + static_cast<std::int64_t>(declared);
  const auto entries = ParseSafetensorsHeader(json, file->size() - data_begin, path);
  if (!entries.ok()) return entries.status();
  std::vector<NamedTensor> tensors;
  for (const Entry& entry : *entries) {
    auto tensor = Tensor::Allocate(entry.name, entry.dtype, entry.shape);
    if (!tensor.ok()) return tensor.status();
    const auto bytes = tensor->mutable_bytes();
    if (auto status = file->ReadAt(data_begin + entry.begin, bytes.data(), bytes.size()); !status.ok()) return status;
    tensors.push_back({entry.name, *std::move(tensor)});
  }
  return tensors;
}

std::string FormatSafetensorsHeader(const std::vector<const NamedTensor*>& ordered) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::int64_t offset = 0;
  for (const NamedTensor* named : ordered) {
    const auto size = static_cast<std::int64_t>(named->tensor.bytes().size());
    header[named->name] = {{"dtype", std::string(FileDTypeName(named->tensor.dtype()))},
                           {"shape", named->tensor.shape()},
                           {"data_offsets", {offset, offset + size}}};
    offset += size;
  }
  std::string text = header.dump();
  const std::int64_t padding = kHeaderAlignment - static_cast<std::int64_t>(text.size()) % kHeaderAlignment;
  text.append(static_cast<std::size_t>(padding % kHeaderAlignment), ' ');
  return text;
}

absl::Status WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  std::vector<const NamedTensor*> ordered;
  std::set<std::string> names;
  for (const NamedTensor& named : tensors) {
    if (!IsValidUtf8(named.name) || named.name == "__metadata__") {
      return Refuse(path, "name", named.name, "UTF-8 and not __metadata__");
    }
    if (!names.insert(named.name).second) return Refuse(path, named.name, "a name given twice", "given once");
    ordered.push_back(&named);
  }
  // Wide elements first: every tensor then begins at a multiple of its element's size.
  std::sort(ordered.begin(), ordered.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return std::pair(-DTypeSize(a->tensor.dtype()), a->name) < std::pair(-DTypeSize(b->tensor.dtype()), b->name);
  });
  const std::string header = FormatSafetensorsHeader(ordered);
  std::array<unsigned char, kLengthBytes> length = {};
  for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<unsigned char>(header.size() >> (8 * i));

  auto file = AtomicFile::Create(path);
  if (!file.ok()) return file.status();
  if (auto status = file->Append(length.data(), length.size()); !status.ok()) return status;
  if (auto status = file->Append(header.data(), header.size()); !status.ok()) return status;
  for (const NamedTensor* named : ordered) {
    const auto bytes = named->tensor.bytes();
    if (auto status = file->Append(bytes.data(), bytes.size()); !status.ok()) return status;
  }
  return file->Commit();
}

}  // namespace keval::tensor_file
