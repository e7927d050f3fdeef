// PNG files of a report's pictures, by a program of the system: see docs/adr/0012-png-by-rsvg-convert.md.
#ifndef KEVAL_CLIENT_CLI_PNG_H_
#define KEVAL_CLIENT_CLI_PNG_H_

#include <string>

#include "absl/status/status.h"

namespace keval::cli {

// OK where $PATH has rsvg-convert; INVALID_ARGUMENT naming `--plots` and how to get it otherwise.
absl::Status CheckPngConverter();

// forest.png and so on beside each picture that WriteReport left in `folder`, on white and at twice the size, each
// whole or not at all. UNAVAILABLE naming the first that can't be converted.
absl::Status WritePngs(const std::string& folder);

}  // namespace keval::cli

#endif  // KEVAL_CLIENT_CLI_PNG_H_
