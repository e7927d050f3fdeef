#include "bench/process_memory.h"

#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace keval::bench {

absl::Status ResetPeak(pid_t pid) {
  std::ofstream file(absl::StrCat("/proc/", pid, "/clear_refs"));
  file << "5" << std::flush;
  return file.good() ? absl::OkStatus() : absl::UnavailableError("the system doesn't reset a process's peak");
}

absl::StatusOr<ResidentBytes> ReadResident(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  ResidentBytes bytes;
  for (std::string line; std::getline(file, line);) {
    for (const auto& [name, value] : {std::pair("VmRSS:", &bytes.now), std::pair("VmHWM:", &bytes.peak)}) {
      absl::string_view text = line;
      std::int64_t kib = 0;
      if (!absl::ConsumePrefix(&text, name) || !absl::ConsumeSuffix(&text, " kB")) continue;
      if (absl::SimpleAtoi(text, &kib)) *value = kib * 1024;
    }
  }
  if (bytes.now == 0 || bytes.peak == 0) return absl::UnavailableError("the system doesn't tell a process's memory");
  return bytes;
}

}  // namespace keval::bench
