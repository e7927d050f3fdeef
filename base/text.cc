#include "base/text.h"

#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"

namespace keval {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";
constexpr absl::string_view kEllipsis = "\xE2\x80\xA6";

struct Decoded {
  std::uint32_t code_point = 0;
  std::size_t size = 1;  // Bytes taken.
  bool valid = false;
};

// Reads one UTF-8 character at the front of non-empty `text`; overlong forms and surrogates are invalid (one byte
// taken).
Decoded DecodeFront(absl::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
  if (size == 0 || lead > 0xF4 || text.size() < size) return {};
  std::uint32_t code_point = lead & (0x7FU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0) != 0x80) return {};
    code_point = (code_point << 6) | (byte & 0x3FU);
  }
  const bool overlong = (size == 3 && code_point < 0x800) || (size == 4 && code_point < 0x10000);
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  if (overlong || surrogate || code_point > 0x10FFFF) return {};
  return {code_point, size, true};
}

bool IsHidden(std::uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || c == 0x200E || c == 0x200F ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF || (c & 0xFFFE) == 0xFFFE ||
         (c >= 0xFDD0 && c <= 0xFDEF);
}

void AppendEscape(std::uint32_t c, std::string& out) {
  constexpr absl::string_view kDigits = "0123456789ABCDEF";
  out += "\\u";
  for (int shift = c > 0xFFFF ? 20 : 12; shift >= 0; shift -= 4) out += kDigits[(c >> shift) & 0xF];
}

bool IsBarredFromXml(std::uint32_t c) {
  return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0xFFFE || c == 0xFFFF;
}

// `text` with an escape in place of each character that `is_hidden` names and U+FFFD in place of each invalid byte.
std::string MakeVisible(absl::string_view text, std::size_t max_bytes, bool (*is_hidden)(std::uint32_t)) {
  std::string out;
  while (!text.empty()) {
    const Decoded next = DecodeFront(text);
    std::string piece;
    if (!next.valid) {
      piece = std::string(kReplacement);
    } else if (is_hidden(next.code_point)) {
      AppendEscape(next.code_point, piece);
    } else {
      piece = std::string(text.substr(0, next.size));
    }
    if (out.size() + piece.size() > max_bytes) return absl::StrCat(out, kEllipsis);
    out += piece;
    text.remove_prefix(next.size);
  }
  return out;
}

}  // namespace

std::string PrintableText(absl::string_view text, std::size_t max_bytes) {
  return MakeVisible(text, max_bytes, IsHidden);
}

std::string XmlText(absl::string_view text) {
  return MakeVisible(text, std::numeric_limits<std::size_t>::max(), IsBarredFromXml);
}

bool IsValidUtf8(absl::string_view text) {
  while (!text.empty()) {
    const Decoded next = DecodeFront(text);
    if (!next.valid) return false;
    text.remove_prefix(next.size);
  }
  return true;
}

}  // namespace keval
