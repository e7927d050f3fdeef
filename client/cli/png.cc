#include "client/cli/png.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/field_error.h"
#include "base/text.h"

namespace keval::cli {
namespace {

constexpr char kConverter[] = "rsvg-convert";

// 0 where it worked.
int Convert(const std::string& svg_path, const std::string& png_path) {
  std::array<std::string, 8> texts = {kConverter, "--zoom",   "2",      "--background-color",
                                      "white",    "--output", png_path, svg_path};
  std::array<char*, texts.size() + 1> arguments{};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    arguments[i] = texts[i].data();
  }
  pid_t pid = -1;
  if (const int error = posix_spawnp(&pid, kConverter, nullptr, nullptr, arguments.data(), environ); error != 0) {
    return error;
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

absl::Status CheckPngConverter() {
  const char* const path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(absl::string_view(path == nullptr ? "" : path), ':')) {
    if (!folder.empty() && access(absl::StrCat(folder, "/", kConverter).c_str(), X_OK) == 0) {
      return absl::OkStatus();
    }
  }
  return InvalidField("--plots", "png", "svg, or png where $PATH has rsvg-convert (package librsvg2-bin)");
}

absl::Status WritePngs(const std::string& folder) {
  const std::string prefix = absl::StrCat(absl::StartsWith(folder, "-") ? "./" : "", folder, "/");  // No option.
  for (const char* const name : {"forest", "rounds", "clocks"}) {
    const std::string png = absl::StrCat(prefix, name, ".png");
    const std::string unfinished = absl::StrCat(png, ".unfinished");
    if (Convert(absl::StrCat(prefix, name, ".svg"), unfinished) != 0 ||
        std::rename(unfinished.c_str(), png.c_str()) != 0) {
      unlink(unfinished.c_str());
      return absl::UnavailableError(absl::StrCat("rsvg-convert can't make ", PrintableText(png, 1024)));
    }
  }
  return absl::OkStatus();
}

}  // namespace keval::cli
