#include "wire/frame.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "absl/strings/str_cat.h"

namespace keval::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "fixed64 and tensor bytes are sent as they lie in memory");

// Tags of `message Frame { fixed64 offset = 1; bytes data = 2; }`.
constexpr std::uint64_t kOffsetTag = (1U << 3) | 1U;
constexpr std::uint64_t kDataTag = (2U << 3) | 2U;
constexpr int kMaxVarintBytes = 10;
enum WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

void AppendVarint(std::uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

// Reads an encoding that lies in pieces. What it hands out points into them.
class Reader {
 public:
  explicit Reader(absl::Span<const absl::string_view> pieces) : pieces_(pieces) {
    for (const absl::string_view piece : pieces) left_ += piece.size();
  }

  std::size_t left() const { return left_; }

  std::optional<std::uint64_t> Varint() {
    std::uint64_t value = 0;
    for (int i = 0; i < kMaxVarintBytes && left_ > 0; ++i) {
      const auto byte = static_cast<unsigned char>(Front(1).front());
      Advance(1);
      value |= static_cast<std::uint64_t>(byte & 0x7FU) << (7 * i);  // Bits past 64 fall off, as protobuf has it.
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  // Calls `each` with the next `size` bytes, piece by piece. REQUIRES size <= left().
  template <typename Function>
  void Take(std::size_t size, const Function& each) {
    while (size > 0) {
      const absl::string_view piece = Front(size);
      each(piece);
      Advance(piece.size());
      size -= piece.size();
    }
  }

 private:
  // At most `size` bytes, at least one. REQUIRES left() > 0.
  absl::string_view Front(std::size_t size) {
    while (at_ == pieces_[piece_].size()) {
      ++piece_;
      at_ = 0;
    }
    return pieces_[piece_].substr(at_, size);
  }
  void Advance(std::size_t size) {
    at_ += size;
    left_ -= size;
  }

  const absl::Span<const absl::string_view> pieces_;
  std::size_t piece_ = 0;
  std::size_t at_ = 0;  // In the current piece.
  std::size_t left_ = 0;
};

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("the message is no protobuf encoding: ", what));
}

}  // namespace

std::string EncodeHead(absl::string_view fields, const Payload& payload) {
  std::string head(fields);
  if (payload.offset != 0) {
    AppendVarint(kOffsetTag, &head);
    head.append(reinterpret_cast<const char*>(&payload.offset), sizeof(payload.offset));
  }
  if (!payload.bytes.empty()) {
    AppendVarint(kDataTag, &head);
    AppendVarint(payload.bytes.size(), &head);
  }
  return head;
}

absl::Status ParseFrame(absl::Span<const absl::string_view> message, FrameData* data, std::string* fields) {
  *data = FrameData();
  fields->clear();
  Reader reader(message);
  while (reader.left() > 0) {
    const std::optional<std::uint64_t> tag = reader.Varint();
    if (!tag || *tag >> 3 == 0 || *tag > UINT32_MAX) return Malformed("a field's number is cut off or out of range");
    if (*tag != kOffsetTag && *tag != kDataTag) AppendVarint(*tag, fields);
    const auto copy = [fields](absl::string_view piece) { fields->append(piece.data(), piece.size()); };
    switch (*tag & 7U) {
      case kVarint: {
        const std::optional<std::uint64_t> value = reader.Varint();
        if (!value) return Malformed("a number is cut off");
        AppendVarint(*value, fields);
        break;
      }
      case kFixed64:
      case kFixed32: {
        const std::size_t size = (*tag & 7U) == kFixed64 ? 8 : 4;
        if (reader.left() < size) return Malformed("a number is cut off");
        if (*tag != kOffsetTag) {
          reader.Take(size, copy);
          break;
        }
        auto* to = reinterpret_cast<char*>(&data->offset);
        reader.Take(size, [&to](absl::string_view piece) { to = std::copy(piece.begin(), piece.end(), to); });
        break;
      }
      case kLengthDelimited: {
        const std::optional<std::uint64_t> size = reader.Varint();
        if (!size || *size > reader.left()) return Malformed("a field is longer than the message");
        if (*tag != kDataTag) {
          AppendVarint(*size, fields);
          reader.Take(*size, copy);
          break;
        }
        data->pieces.clear();
        data->size = *size;
        reader.Take(*size, [data](absl::string_view piece) { data->pieces.push_back(piece); });
        break;
      }
      default:
        return Malformed("a field has an unknown wire type");
    }
  }
  return absl::OkStatus();
}

}  // namespace keval::wire
