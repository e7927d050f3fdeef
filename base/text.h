// Text that came from outside, made safe to show on a terminal or write into a log.
#ifndef KEVAL_BASE_TEXT_H_
#define KEVAL_BASE_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace keval {

// `text` as valid UTF-8 without control characters: C0, DEL, C1, noncharacters, surrogates and bidirectional controls
// become visible substitutes ("\u001B" as the six characters), an invalid byte becomes U+FFFD. Longer than `max_bytes`:
// cut at a character, with "…" behind. Tab and newline are substituted too.
std::string PrintableText(absl::string_view text, std::size_t max_bytes = 4096);

// `text` with everything that XML 1.0 can't hold made visible as in PrintableText: control characters but tab, newline
// and carriage return, U+FFFE and U+FFFF, invalid bytes. The rest stays as it is; markup is the XML writer's to escape.
std::string XmlText(absl::string_view text);

// No overlong forms, no surrogates, nothing cut off. Control characters are valid.
bool IsValidUtf8(absl::string_view text);

}  // namespace keval

#endif  // KEVAL_BASE_TEXT_H_
